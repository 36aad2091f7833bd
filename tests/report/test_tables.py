"""Tables of window accuracies."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from ebbflow.core.judging import JUDGES
from ebbflow.report.tables import REACHED, comparison_tables, device_tables

Rows = list[dict[str, Any]]


def rows(method: str, accuracies: list[float], **others: Any) -> Rows:
    """Return rows of the first transition, one per seed."""
    row = {"algorithm": "fedavg", "method": method, "session": 4, "transition": 1, "window": 10}
    return [row | {"seed": n, "accuracy": value} | others for n, value in enumerate(accuracies)]


def cells(table: Table) -> list[list[str]]:
    """Return a table's cells with their markup, row by row."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def printed(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    return out.getvalue()


def test_mean_and_deviation_over_seeds() -> None:
    (table,) = comparison_tables(rows("average", [10.0, 20.0, 30.0]), ["fedavg"], ["average"])
    assert cells(table) == [["average", "[bold]20.00 ± 10.00[/]"]]  # n - 1 = 2: (100 + 100) / 2
    assert table.caption == "mean ± standard deviation over 3 seeds; best in bold"


def test_the_best_is_bold_in_every_transition() -> None:
    first = rows("warm_start", [90.0]) + rows("previous", [80.0])
    second = {"session": 5, "transition": 2}
    later = rows("warm_start", [70.0], **second) + rows("previous", [75.0], **second)
    (table,) = comparison_tables(first + later, ["fedavg"], ["warm_start", "previous"])
    assert cells(table) == [
        ["warm_start", "[bold]90.00[/]", "70.00"],
        ["previous", "80.00", "[bold]75.00[/]"],
    ]


def test_equals_are_both_best() -> None:
    (table,) = comparison_tables(rows("a", [50.0]) + rows("b", [50.0]), ["fedavg"], ["a", "b"])
    assert [row[1] for row in cells(table)] == ["[bold]50.00[/]"] * 2


def test_one_seed_has_no_deviation() -> None:
    (table,) = comparison_tables(rows("average", [12.25]), ["fedavg"], ["average"])
    assert "±" not in printed(table)
    assert table.caption == "one seed; best in bold"


def test_methods_stand_in_the_order_that_was_asked_for() -> None:
    both = rows("average", [1.0]) + rows("warm_start", [2.0])
    (table,) = comparison_tables(both, ["fedavg"], ["warm_start", "average"])
    assert [row[0] for row in cells(table)] == ["warm_start", "average"]


def test_every_algorithm_and_window_has_its_table() -> None:
    found = comparison_tables(
        rows("average", [1.0])
        + rows("average", [2.0], window=5)
        + rows("average", [3.0], algorithm="fedprox"),
        ["fedavg", "fedprox"],
        ["average"],
    )
    titles = [str(table.title) for table in found]
    assert titles == [
        "fedavg, accuracy (%) over the first 5 rounds",
        "fedavg, accuracy (%) over the first 10 rounds",
        "fedprox, accuracy (%) over the first 10 rounds",
    ]


def test_sessions_without_a_choice_are_left_out() -> None:
    assert comparison_tables(rows("average", [1.0], transition=None), ["fedavg"], ["average"]) == []


def test_what_devices_reach_is_a_mean_over_transitions_and_seeds() -> None:
    found = rows("average", [10.0, 20.0, 30.0]) + rows("previous", [40.0, 50.0, 60.0])
    assert device_tables(found, ["fedavg"], ["average"]) == []
    for place, row in enumerate(found):
        reached = {"all_labels": 1.0, "devices_mean": 2.0, "devices_worst": float(place)}
        row |= {"final": 5.0, **reached, "devices_spread": 0.5, "devices_devices": 3}
    (table,) = device_tables(found, ["fedavg", "fedprox"], ["average", "previous"])
    assert [column.header for column in table.columns][1:] == list(REACHED.values())
    worst = list(table.columns[4].cells)
    chosen = [
        [r["devices_worst"] for r in found if r["method"] == m and r["transition"] is not None]
        for m in ("average", "previous")
    ]
    assert worst == [f"{sum(each) / len(each):.2f}" for each in chosen]


def test_many_transitions_are_rows_with_a_mean_of_all() -> None:
    found = [
        row
        for k in range(1, 8)
        for method, score in (("a", 10.0 * k), ("b", 45.0))
        for row in rows(method, [score], session=k + 3, transition=k)
    ]
    (table,) = comparison_tables(found, ["fedavg"], ["a", "b"])
    assert [column.header for column in table.columns] == ["session\n(trans.)", "a", "b"]
    assert cells(table)[0] == ["4 (1)", "10.00", "[bold]45.00[/]"]
    assert cells(table)[6] == ["10 (7)", "[bold]70.00[/]", "45.00"]
    assert cells(table)[-1] == ["all", "40.00", "[bold]45.00[/]"]
    missing = [row for row in found if (row["method"], row["transition"]) != ("b", 7)]
    (table,) = comparison_tables(missing, ["fedavg"], ["a", "b"])
    assert cells(table)[-1] == ["all", "[bold]40.00[/]", "–"]


def test_of_errors_the_lowest_is_bold() -> None:
    both = rows("a", [0.5]) + rows("b", [1234.5])
    (table,) = comparison_tables(both, ["fedavg"], ["a", "b"], JUDGES["rmse"])
    assert cells(table) == [["a", "[bold]0.5[/]"], ["b", "1234"]]
    assert str(table.title).startswith("fedavg, RMSE over")
