"""Kept forks: one small JSON file for each cell, used as long as its digest is the cell's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from chang2025.results import compact
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.core.processor import instructions
from ebbflow.runs.environment import machine, versions
from ebbflow.runs.records import read_json
from ebbflow.sweeps.digests import result_settings
from learned_start.forking import ForkCell, ForkRow, as_json, fork

RESULTS = Path(__file__).resolve().parent / "results"
FORMAT = 1


def is_done(cell: ForkCell, results: Path) -> bool:
    """Whether a cell has a result that was made as it is defined today."""
    path = _path(cell, results)
    return path.is_file() and read_json(path).get("hash") == cell.digest


def read_rows(cell: ForkCell, results: Path = RESULTS) -> list[ForkRow]:
    """Return the rows of a cell's result."""
    if not is_done(cell, results):
        raise EbbflowError(
            f"there is no result of {cell.name} in {results}: make it by `python -m learned_start "
            "fork`"
        )
    rows = read_json(_path(cell, results))["rows"]
    return [ForkRow(**{**row, "accuracy": tuple(row["accuracy"])}) for row in rows]


def run_forks(
    cells: Sequence[ForkCell], results: Path, jobs: int, say: Callable[[str], None] = print
) -> list[str]:
    """Run the cells that have no result yet, ``jobs`` at a time; return what went wrong."""
    open_cells = [cell for cell in cells if not is_done(cell, results)]
    say(f"{len(cells) - len(open_cells)} of {len(cells)} cells are done already")
    results.mkdir(parents=True, exist_ok=True)
    failures = []
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(_computed, cell, jobs): cell for cell in open_cells}
        for done in as_completed(running):
            cell = running[done]
            try:
                content = done.result()
            except EbbflowError as error:
                failures.append(f"{cell.name}: {error}")
                say(f"{cell.name} failed: {error}")
                continue
            write_atomically(_path(cell, results), compact(content).encode())
            say(f"{cell.name}, {content['seconds']:.0f} s")
    return failures


def _computed(cell: ForkCell, jobs: int) -> dict[str, Any]:
    """Run a cell; beside others, on one worker, which changes no result."""
    began = time.monotonic()
    setting = cell.setting.with_settings({"engine.workers": 1}) if jobs > 1 else cell.setting
    rows = fork(replace(cell, setting=setting))
    return {
        "cell": cell.name,
        "format": FORMAT,
        "hash": cell.digest,
        "versions": versions(),
        "machine": machine(),
        "capability": instructions()["torch"],
        "seconds": round(time.monotonic() - began, 1),
        "config": result_settings(cell.setting.config),
        "rows": as_json(rows),
    }


def _path(cell: ForkCell, results: Path) -> Path:
    return results / f"{cell.name}.json"
