"""Small fork studies on the packaged digits, and results that no run made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chang2025.cells import Cell
from chang2025.results import compact
from learned_start.forking import ForkCell, ForkRow, as_json
from learned_start.rules import LEARNED, MAIN_RULES, Rule

VALUES: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": ["fedavg"],
    "methods": ["warm_start"],
    "seeds": [7],
    "sessions": 5,
    "rounds": 3,
    "partition.devices": 4,
}
"""Session 1 is the pilot; sessions 4 and 5 have more than one past session to draw on."""
TRANSITIONS = (4, 5)


def tiny(
    rules: Sequence[Rule] = MAIN_RULES,
    rounds: int = 2,
    repeats: int = 1,
    driver: str = LEARNED,
    settings: Mapping[str, Any] | None = None,
) -> ForkCell:
    """Return a fork study of a tenth of a second."""
    setting = Cell("digits-s7", {**VALUES, **(settings or {})})
    return ForkCell(setting, tuple(rules), rounds, repeats, driver)


def made_rows(
    levels: Mapping[str, Sequence[float]], session: int = 4, repeat: int = 0
) -> list[ForkRow]:
    """Return a row for every rule, with these accuracies."""
    return [ForkRow(session, rule, repeat, tuple(level), {}) for rule, level in levels.items()]


def keep(cell: ForkCell, rows: Sequence[ForkRow], results: Path) -> Path:
    """Write of a cell's result what is read again."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{cell.name}.json"
    path.write_text(compact({"hash": cell.digest, "rows": as_json(rows)}), encoding="utf-8")
    return path
