"""Ours beside theirs: what agrees, what differs, and what counts."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from statistics import stdev

import pytest
from rich.console import Console

from chang2025.ablations import ablation, ablation_rows, largest_gap
from chang2025.collecting import Family
from chang2025.comparing import agreement, comparison
from chang2025.fit import ALGORITHMS as FITTED
from chang2025.fit import fit, fit_cells, read_fit, write_fit
from chang2025.reference import accuracies
from chang2025.rendering import Grid, Report, as_csv, as_html, as_json, as_markdown, as_tables
from chang2025.reports import report
from chang2025.rows import ComparedRow, PaperValue, accuracy_rows, first_ten_rows
from chang2025.studies import accuracy_file, cells_of
from chang2025.study_cells import MAIN_ALGORITHMS
from chang2025.windows import Window
from ebbflow.core.errors import EbbflowError
from tests.chang2025.made import ROUNDS, Level, write_made

WINDOW = Window(7)
FIRST = cells_of("mnist-accuracy", "full", (100,))[:1]  # overlap 0.0, alpha 0.3


def paper(overlap: float) -> dict[tuple[str, int, str], float]:
    return {
        (row.algorithm, row.transition, row.method): row.accuracy
        for row in accuracies(accuracy_file("mnist"))
        if (row.dataset, row.overlap, row.alpha) == ("mnist", overlap, 0.3)
    }


def exactly(overlap: float = 0.0, shift: float = 0.0) -> Level:
    """Return curves whose mean over the first seven rounds is the paper's, and over no others."""
    theirs = paper(overlap)

    def level(algorithm: str, method: str, session: int, t: int) -> float:
        as_run = algorithm if algorithm in MAIN_ALGORITHMS else "scaffold-authors"
        return theirs.get((as_run, session - 3, method), 50.0) + (t - 4) + shift

    return level


def test_results_that_are_the_papers_agree_in_everything(tmp_path: Path) -> None:
    write_made(FIRST, tmp_path, exactly())
    rows = accuracy_rows("mnist", tmp_path, WINDOW)
    found = agreement(rows)
    assert found.rows == found.winners == found.orders == len(MAIN_ALGORITHMS) * 2
    assert found.median == pytest.approx(0, abs=1e-3)
    assert {row.algorithm for row in rows if row.counted} == set(MAIN_ALGORITHMS)
    beside = {row.algorithm: row for row in rows if not row.counted}
    assert set(beside) == {"scaffold", "fedavg"}
    assert beside["scaffold"].theirs and not beside["fedavg"].theirs
    assert beside["scaffold"].label == "(scaffold)"


def test_large_differences_are_listed_and_unexplained_unless_we_know_better(tmp_path: Path) -> None:
    write_made(FIRST, tmp_path, exactly(shift=3.0))
    found = comparison("mnist-accuracy", tmp_path, WINDOW)
    assert found.summary["winner_agrees"] == found.summary["order_agrees"] == 8
    assert found.summary["median_absolute_difference"] == pytest.approx(
        dict.fromkeys(("warm_start", "continuous", "previous", "average"), 3.0), abs=1e-3
    )
    listed = found.grids[-1]
    assert len(listed.rows) == 8 * 4
    scattered = {
        (row.algorithm, str(row.transition), column)
        for row in accuracy_rows("mnist", tmp_path, WINDOW)
        if row.counted
        for column in row.both()
        if row.theirs[column].std >= 1.5  # 3 points are two of these
    }
    assert 0 < len(scattered) < len(listed.rows)
    for line in listed.rows:
        assert line[-1].startswith("seeds:" if tuple(line[1:4]) in scattered else "unexplained")
    assert comparison("mnist-accuracy", tmp_path, Window(5)).summary["window"] == "5"


def test_a_row_knows_who_is_first_and_how_far_it_is_off() -> None:
    row = ComparedRow(
        *("mnist-accuracy", Family(FIRST[0], "full", ()), "moon", 2),
        {"warm_start": [90.0, 92.0], "previous": [95.0, 97.0], "average": [10.0, 10.0]},
        {
            "warm_start": PaperValue(93.0, 0.5),
            "previous": PaperValue(80.0, 1.0),
            "average": PaperValue(70.0),
        },
    )
    ours, theirs = row.orders()
    assert ours == ["previous", "warm_start", "average"]
    assert theirs == ["warm_start", "previous", "average"]
    assert not row.same_winner and not row.same_order
    assert (row.difference("warm_start"), row.deviations("warm_start")) == (-2.0, -4.0)
    assert math.isnan(row.deviations("average"))
    assert row.large() == ["previous", "average"]
    assert largest_gap(row) == (86.0, 23.0)
    line = next(iter(row.flat()))
    assert line["ours_std"] == pytest.approx(stdev([90.0, 92.0]))


def test_means_are_over_the_seeds_that_are_there(tmp_path: Path) -> None:
    for cell, shift in zip(
        cells_of("mnist-accuracy", "full", (100, 200)), (0.0, 1.0), strict=False
    ):
        write_made([cell], tmp_path, exactly(shift=shift))
    (row,) = (
        row
        for row in accuracy_rows("mnist", tmp_path, WINDOW)
        if (row.algorithm, row.transition) == ("moon", 2)
    )
    assert row.seeds == (100, 200)
    assert row.difference("previous") == pytest.approx(0.5, abs=1e-3)


def test_a_result_of_other_settings_does_not_count(tmp_path: Path) -> None:
    write_made(FIRST, tmp_path, exactly())
    facts = tmp_path / f"{FIRST[0].name}.json"
    facts.write_text(facts.read_text().replace(FIRST[0].digest, "0" * 16))
    assert accuracy_rows("mnist", tmp_path, WINDOW) == []
    assert "Nothing to compare" in comparison("mnist-accuracy", tmp_path, WINDOW).lines[1]


def test_checks_beside_a_table_are_shown_and_not_counted(tmp_path: Path) -> None:
    write_made(cells_of("agnews-accuracy", "small", (100,)), tmp_path)
    rows = accuracy_rows("agnews", tmp_path, WINDOW)
    assert {row.label for row in rows if row.note} == {"(fedprox, 100 devices)"}
    assert agreement(rows).rows == 2 * 2 * len(MAIN_ALGORITHMS)


def test_the_appendix_is_compared_by_model_and_its_impossible_rows_are_explained(
    tmp_path: Path,
) -> None:
    name = "first10-two-shard-partial-overlap"
    cells = [
        cell
        for cell in cells_of(name, "full", (100,))
        if cell.name.startswith(("mnist-partial_overlap", "mnist-two_shard"))
    ]
    write_made(cells, tmp_path)
    rows = first_ten_rows(name, tmp_path, Window(10))
    assert {row.model for row in rows} == {"softmax", "mlp"}
    assert all(row.counted == (row.algorithm != "scaffold") for row in rows)
    listed = report(name, tmp_path, Window(10)).grids[-1].rows
    causes = {(line[0], line[1]): line[-1] for line in listed}
    assert "CIFAR-100" in causes["MNIST, Partial-Overlap", "fedprox, mlp"]
    assert causes["MNIST, Partial-Overlap", "moon, mlp"] == "unexplained"


def test_an_ablation_says_how_far_its_variants_are_apart(tmp_path: Path) -> None:
    for seed in (100, 200):
        for cell in cells_of("probe-rounds", "full", (seed,)):
            if cell.name.startswith("mnist"):
                more = cell.config.probe.rounds + seed / 100

                def level(algorithm: str, method: str, s: int, t: int, more: float = more) -> float:
                    return 80.0 + more

                write_made([cell], tmp_path, level)
    rows = ablation_rows("probe-rounds", tmp_path, Window(5))
    assert [(row.algorithm, row.transition) for row in rows[:2]] == [
        (MAIN_ALGORITHMS[0], 2),
        (MAIN_ALGORITHMS[0], 4),
    ]
    assert all(list(row.ours) == ["V = 1", "V = 2", "V = 3"] for row in rows)
    assert all(largest_gap(row)[0] == pytest.approx(2.0) for row in rows)
    text = ablation("probe-rounds", tmp_path, Window(5)).lines[1]
    assert "at most 2.00 points apart" in text
    assert f"in 0 of {len(rows)} rows" in text  # the seeds are only 0.71 apart


def test_an_ablation_is_held_against_the_papers_own_rows(tmp_path: Path) -> None:
    for cell in cells_of("probe-rounds", "small", (100,)):
        if cell.name.startswith("agnews"):
            more = float(cell.config.probe.rounds)

            def level(algorithm: str, method: str, s: int, t: int, more: float = more) -> float:
                return 60.0 + more if s == 7 else 60.0

            write_made([cell], tmp_path, level)
    text = ablation("probe-rounds", tmp_path, Window(5)).lines[1]
    # The paper's: 66.62 to 66.64 at the second transition, 68.99 to 69.80 (± 3.04) at the fourth.
    assert (
        "In the 2 rows that the paper also has, ours are at most 2.00 apart and the paper's "
        "0.81; in 2 ours are within one of the paper's standard deviations." in text
    )


def test_a_scale_that_the_paper_does_not_try_is_reported_by_itself(tmp_path: Path) -> None:
    for cell in cells_of("similarity-scale", "full", (100,)):
        if cell.name.startswith("mnist"):
            lost = 5.0 if cell.config.parameters["warm_start"]["scale"] == 1 else 0.0

            def level(algorithm: str, method: str, s: int, t: int, lost: float = lost) -> float:
                return 90.0 - lost

            write_made([cell], tmp_path, level)
    text = ablation("similarity-scale", tmp_path, Window(5)).lines[1]
    assert "at most 0.00 points apart" in text
    assert "R = 1, which the paper does not try, is 5.00 points behind" in text


# --- the window ----------------------------------------------------------------------------------


def test_the_fit_finds_window_and_reading(tmp_path: Path) -> None:
    for cell in fit_cells():
        overlap = cell.config.partition.overlap or 0.0
        right = (
            cell.config.local.rule == "each_step"
            and cell.config.parameters["continuous"]["first"] == "uniform"
        )
        write_made([cell], tmp_path, exactly(overlap, shift=0.0 if right else 0.4))
    found = fit(tmp_path)
    assert found.window == WINDOW
    # Neither the distance nor where session P+1 starts from was given a difference.
    assert found.reading == "each_step"
    assert found.errors["each_step"][WINDOW] == pytest.approx(0, abs=1e-3)
    assert found.errors["authors-code"][WINDOW] == pytest.approx(0.4, abs=1e-3)
    # Continuous alone is another in the untaught reading: a quarter of all numbers.
    assert found.errors["each_step, untaught"][WINDOW] == pytest.approx(0.1, abs=1e-3)
    write_fit(found, tmp_path)
    again = read_fit(tmp_path)
    assert (again.window, again.reading) == (found.window, found.reading)
    assert again.errors["raw"][Window(3)] == pytest.approx(found.errors["raw"][Window(3)], abs=1e-3)
    assert set(json.loads((tmp_path / "fit.json").read_text())["algorithms"]) == set(FITTED)


def test_the_fit_notices_windows_that_begin_one_entry_early(tmp_path: Path) -> None:
    """Sessions end at 90, and 90 with four times the first rounds make five times the paper's."""
    for cell in fit_cells():
        theirs = paper(cell.config.partition.overlap or 0.0)

        def level(
            algorithm: str,
            method: str,
            session: int,
            t: int,
            last: int = ROUNDS,
            theirs: dict[tuple[str, int, str], float] = theirs,
        ) -> float:
            wanted = theirs.get((algorithm, session - 3, method), 50.0)
            return 90.0 if t == last else (5 * wanted - 90.0) / 4 + (t > 4)

        write_made([cell], tmp_path, level)
    assert fit(tmp_path).window == Window(5, early=True)


def test_without_a_fit_a_window_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="python -m chang2025 fit"):
        report("mnist-accuracy", tmp_path)
    assert report("mnist-accuracy", tmp_path, Window(5)).summary["window"] == "5"


# --- forms ---------------------------------------------------------------------------------------


def test_a_report_is_the_same_in_every_form(tmp_path: Path) -> None:
    write_made(FIRST, tmp_path, exactly(shift=1.0))
    found = comparison("mnist-accuracy", tmp_path, WINDOW)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    content = json.loads(as_json(found))
    assert len(rows) == len(content["rows"]) == 2 * 6 * 4
    first = content["rows"][0]
    assert float(rows[0]["difference"]) == pytest.approx(first["difference"], rel=1e-4)
    assert first["ours_std"] is None and rows[0]["ours_std"] == ""  # one seed
    page, html = as_markdown(found), as_html(found)
    assert page.startswith("# Accuracy in the initial rounds")
    assert "**93.04**" in page and "<strong>93.04</strong>" in html
    assert html.count("<tr>") == sum(len(grid.rows) + 1 for grid in found.grids)
    assert "http" not in html
    assert first["winner_agrees"] is True and rows[0]["order_agrees"] == "True"


def test_in_a_terminal_a_table_has_headings_in_place_of_its_first_columns(tmp_path: Path) -> None:
    write_made(FIRST, tmp_path, exactly(shift=1.0))
    found = comparison("mnist-accuracy", tmp_path, WINDOW)
    console = Console(file=io.StringIO(), width=80)
    for each in as_tables(found, console.width):
        console.print(each)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    for algorithm in (*MAIN_ALGORITHMS, "(scaffold)", "(fedavg)"):
        for k in (2, 4):
            assert f"{algorithm}, transition {k}\n" in re.sub(r" +\n", "\n", text)
    assert text.count("warm_start") == 1  # one head for all sections
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert re.search(r"paper +92\.04 ± 0\.24 +76\.92 ± 0\.34", text)


def test_empty_cells_belong_to_the_section_above() -> None:
    rows = [["a", "b", "1"], ["", "", "2"], ["", "c", "3"], ["d", "e", "4"]]
    grid = Grid("Title", ["x", "y", "z"], rows, ["A note."], sections=2)
    tables = as_tables(Report("id", "title", [], [grid], []))
    assert [str(each.title).split("[italic]")[1] for each in tables] == [
        "a, b[/]",
        "a, c[/]",
        "d, e[/]",
    ]
    assert [each.row_count for each in tables] == [2, 1, 1]
    assert [each.caption for each in tables] == [None, None, "A note."]
