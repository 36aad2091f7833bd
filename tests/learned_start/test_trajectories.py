"""Trajectories: which cells are run, and rows that join them with the paper's kept results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from chang2025.cells import METHODS, WITHOUT_CONTINUOUS, Cell
from chang2025.studies import all_cells
from ebbflow.core.errors import EbbflowError
from learned_start import trajectories
from learned_start.rules import LEARNED
from learned_start.settings import DESIGN_SEEDS, TEST_SEEDS
from learned_start.trajectories import FAMILIES, Row, churn_rows, rows_of
from tests.chang2025.made import ROUNDS, write_made

LATE = {LEARNED: 0.0, "warm_start": 10.0, "previous": 20.0, "average": 30.0, "continuous": 40.0}
"""How much lower each start begins."""


def height(method: str, session: int, t: int, seed: int) -> float:
    """Return a curve in closed form; seeds lie one point apart."""
    return 80.0 + session + seed / 100 - LATE[method] / t


def write(cells: Iterable[Cell], results: Path) -> None:
    for cell in cells:
        write_made([cell], results, lambda _, method, s, t, c=cell: height(method, s, t, c.seed))  # type: ignore[misc]


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "count", "others"),
    [("paper", 8, METHODS), ("appendix", 8, WITHOUT_CONTINUOUS)],
)
def test_seeds_of_the_paper_run_only_the_learned_start(
    family: str, count: int, others: tuple[str, ...]
) -> None:
    for seed in (*DESIGN_SEEDS, *TEST_SEEDS):
        cells = list(FAMILIES[family]([seed]))
        assert len(cells) == count
        for cell in cells:
            expected = [LEARNED] if seed in DESIGN_SEEDS else [LEARNED, *others]
            assert cell.config.methods == expected
            assert cell.seed == seed


@pytest.mark.parametrize("family", ["paper", "appendix"])
def test_cells_are_the_papers_own_but_for_the_methods(family: str) -> None:
    """They have its names, by which kept results are found, and all its other settings."""
    own = all_cells(["full"], [100, 400])
    for cell in FAMILIES[family]([100, 400]):
        paper = own[cell.name]
        assert {**cell.values, "methods": None} == {**paper.values, "methods": None}
        assert cell.needed_samples == paper.needed_samples
        assert cell.digest != paper.digest


def test_names_are_of_one_cell_each() -> None:
    cells = [cell for family in FAMILIES.values() for cell in family((*DESIGN_SEEDS, *TEST_SEEDS))]
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.name.endswith(f"-s{cell.seed}") for cell in cells)


def test_random_churn_is_run_with_every_start_and_plainly() -> None:
    cells = {cell.name: cell for cell in FAMILIES["churn"]([100])}
    assert list(cells) == [
        f"churn-{dataset}-{many}-{split}{plain}-s100"
        for many, datasets in (("30", ("digits", "mnist")), ("200", ("digits",)))
        for split in ("all", "split")
        for dataset in datasets
        for plain in ("", "-plain")
    ]
    for name, cell in cells.items():
        config = cell.config
        assert config.schedule.kind == "random" and config.pilot.carry_over
        if "-plain" in name:
            assert config.methods == ["previous"] and config.boundary.state == "keep"
            rate = config.lr.algorithms["fedavg"]
            assert rate.floor == 1  # as a fraction of the first rate
        else:
            assert set(config.methods) == {LEARNED, *WITHOUT_CONTINUOUS}


# --- rows ----------------------------------------------------------------------------------------


def some(seeds: Iterable[int], family: str = "mnist-two_shard") -> list[Cell]:
    return [cell for cell in FAMILIES["appendix"](list(seeds)) if cell.family == family]


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is taken for the paper's kept results."""
    monkeypatch.setattr(trajectories, "PAPER_RESULTS", tmp_path / "paper")
    return tmp_path / "paper"


def test_rows_average_seeds_and_join_the_papers_own_results(tmp_path: Path, paper: Path) -> None:
    cells = some((100, 300))
    write(cells, tmp_path)
    own = all_cells(["full"], [100, 300])
    write([own[cell.name] for cell in cells], paper)
    rows = rows_of(cells, tmp_path)
    config = cells[0].config
    first = config.pilot.sessions + 3
    places = [(row.setting, row.algorithm, row.session) for row in rows]
    assert len(places) == len(set(places))
    assert set(places) == {
        ("mnist-two_shard", algorithm, session)
        for algorithm in config.algorithm
        for session in range(first, config.sessions + 1)
    }
    for row in rows:
        assert list(row.curves) == [LEARNED, *WITHOUT_CONTINUOUS]
        for method, curve in row.curves.items():
            expected = [height(method, row.session, t, 200) for t in range(1, ROUNDS + 1)]
            assert curve == pytest.approx(expected, abs=0.001)  # kept with three digits
        assert row.first == LEARNED


def test_rows_of_other_seeds_need_no_paper(tmp_path: Path, paper: Path) -> None:
    cells = some((400, 500))
    write(cells, tmp_path)
    row = rows_of(cells, tmp_path)[0]
    assert list(row.curves) == [LEARNED, *WITHOUT_CONTINUOUS]
    assert row.curves["previous"][0] == pytest.approx(height("previous", row.session, 1, 450))
    assert not paper.exists()


def test_cells_without_a_result_of_today_have_no_rows(tmp_path: Path, paper: Path) -> None:
    assert rows_of(some((400,)), tmp_path) == []
    write([cell.with_settings({"sessions": 5}) for cell in some((400,))], tmp_path)
    assert rows_of(some((400,)), tmp_path) == []


def test_a_missing_result_of_the_paper_is_said(tmp_path: Path, paper: Path) -> None:
    write(some((100,)), tmp_path)
    with pytest.raises(EbbflowError, match="make it by `python -m chang2025 run`"):
        rows_of(some((100,)), tmp_path)


def test_what_a_row_says_by_hand() -> None:
    row = Row(
        "mnist",
        "fedavg",
        4,
        {
            "learned": (*(60.0,) * 10, 61.0, 90.0),
            "warm_start": (*(70.0,) * 5, *(52.0,) * 5, 95.0, 88.0),
        },
    )
    assert row.window("learned") == 60.0
    assert row.window("warm_start") == 61.0
    assert row.window("warm_start", 5) == 70.0
    assert row.first == "warm_start"  # what comes after ten rounds does not count
    assert row.lead("learned", "warm_start", 1) == -10.0
    assert row.lead("learned", "warm_start", 6) == 8.0
    assert row.lead("learned", "warm_start", None) == 2.0
    assert row.lead("learned", "warm_start", 20) == 2.0  # of a session of twelve rounds
    assert row.lead("warm_start", "learned", 11) == 34.0


# --- churn ---------------------------------------------------------------------------------------


def test_churn_rows_are_means_from_session_4_on_and_of_the_last_five(tmp_path: Path) -> None:
    cells = [
        cell
        for cell in FAMILIES["churn"]([100, 300])
        if cell.name.startswith("churn-digits-30-all")
    ]
    for cell in cells:
        plain = 5.0 if "-plain" in cell.name else 0.0

        def level(_: str, method: str, session: int, t: int, cell: Cell = cell) -> float:
            return session + cell.seed / 100 - LATE[method] / 10 + plain  # noqa: B023

        write_made([cell], tmp_path, level)
    rows = {row.method: row for row in churn_rows(cells, tmp_path)}
    assert list(rows) == [LEARNED, "warm_start", "previous", "average", "plain"]
    # Sessions 4 to 30 have the mean 17, sessions 26 to 30 have 28; the two seeds add 1 and 3.
    for method, row in rows.items():
        more = 2 + (5 - 2 if method == "plain" else -LATE[method] / 10)
        assert row.setting == "churn-digits-30-all"
        assert row.mean == pytest.approx(17 + more)
        assert row.last == pytest.approx(28 + more)
        assert row.seeds == 2


def test_churn_that_was_not_run_has_no_rows(tmp_path: Path) -> None:
    assert churn_rows(list(FAMILIES["churn"]([100])), tmp_path) == []
