"""Kept results are those of cells as they are defined today."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from chang2025.running import is_done
from learned_start.charged import FILE as CHARGED
from learned_start.charged import METHODS, cells, charged_digest, read_charged
from learned_start.forking import ForkCell
from learned_start.keeping import RESULTS, read_rows
from learned_start.settings import DESIGN_SEEDS, FAMILIES, TEST_SEEDS, cells_of
from learned_start.trajectories import FAMILIES as TRAJECTORY_FAMILIES
from learned_start.trajectories import TRAJECTORIES
from learned_start.within import ALGORITHMS, ROUNDS, read_within
from learned_start.within import FILE as WITHIN

KEPT = sorted(path for path in RESULTS.glob("*.json") if path.name not in (WITHIN, CHARGED))


@cache
def known() -> dict[str, ForkCell]:
    """Return the cells of all families by name."""
    seeds = (DESIGN_SEEDS, TEST_SEEDS)
    return {
        cell.name: cell for family in FAMILIES for some in seeds for cell in cells_of(family, some)
    }


def test_names_are_of_one_cell_each() -> None:
    seeds = (DESIGN_SEEDS, TEST_SEEDS)
    cells = [cell for family in FAMILIES for some in seeds for cell in cells_of(family, some)]
    assert len(known()) == len(cells)


def test_every_kept_fork_has_the_digest_of_a_cell_of_today() -> None:
    for path in KEPT:
        assert path.stem in known(), f"{path.name} is of no cell: remove it"
        kept = json.loads(path.read_text(encoding="utf-8"))["hash"]
        assert kept == known()[path.stem].digest, (
            f"{path.name} was made with other settings or rules than its cell has today: run "
            "`python -m learned_start fork` again"
        )


def test_every_kept_fork_has_all_rows_of_its_cell() -> None:
    for path in KEPT:
        cell = known()[path.stem]
        rows = read_rows(cell)
        config = cell.setting.config
        first = max(config.pilot.sessions + 3, cell.since)
        expected = [
            (session, repeat, rule.name)
            for session in range(first, (len(cell.order) or config.sessions) + 1)
            for repeat in range(cell.repeats)
            for rule in cell.rules
        ]
        assert [(row.session, row.repeat, row.rule) for row in rows] == expected, path.name
        assert {len(row.accuracy) for row in rows} == {cell.rounds}, path.name
        for row in rows:
            if row.mixture:  # weights are kept with four digits after the point
                assert sum(row.mixture.values()) == pytest.approx(1, abs=0.001), path.name


def test_every_kept_trajectory_has_the_digest_of_a_cell_of_today() -> None:
    cells = {
        cell.name: cell
        for family in TRAJECTORY_FAMILIES.values()
        for cell in family((*DESIGN_SEEDS, *TEST_SEEDS))
    }
    # The table of a result is written first, and what describes it second.
    for path in sorted(Path(TRAJECTORIES).glob("*.json")):
        assert path.stem in cells, f"{path.name} is of no cell: remove it"
        assert is_done(cells[path.stem], TRAJECTORIES), (
            f"{path.name} was made with other settings than its cell has today: run "
            "`python -m learned_start run` again"
        )


def test_kept_sessions_with_learned_steps_are_whole() -> None:
    for row in read_within(RESULTS):
        assert row.algorithm in ALGORITHMS and len(row.accuracy) == ROUNDS, row[:3]


def test_every_kept_charged_row_is_of_a_cell_of_today() -> None:
    every = {cell.name: cell for cell in cells((*DESIGN_SEEDS, *TEST_SEEDS))}
    kept = json.loads((RESULTS / CHARGED).read_text(encoding="utf-8"))
    for name, content in kept.items():
        assert content["digest"] == charged_digest(every[name]), name
    rows = read_charged((*DESIGN_SEEDS, *TEST_SEEDS), RESULTS)
    assert {row.method for row in rows} == set(METHODS)
    assert len(rows) == sum(len(content["rows"]) for content in kept.values())
