"""Tables of runs: what was recorded and computed, in columns of one kind."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.analysis.run_metrics import metrics_of
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.spending import spending
from ebbflow.core.errors import EbbflowError
from ebbflow.report.export.columns import Frame
from ebbflow.report.export.frames import TABLES, differing_settings, named_apart, table
from ebbflow.report.export.result_tables import TARGETS
from ebbflow.runs.summary import summary_rows
from tests.report.run_views import (
    HOSTILE,
    comparison,
    lower_is_better,
    two_algorithms,
    under_way,
    wards,
)

KINDS = {"text": str, "whole": int, "number": float, "switch": bool}


def check(frame: Frame) -> None:
    """Check that every row has a cell of the right kind in every column."""
    assert len(set(frame.names)) == len(frame.names)
    for row in frame.rows:
        assert tuple(row) == frame.names
        for column in frame.columns:
            cell = row[column.name]
            assert cell is None or type(cell) is KINDS[column.kind], (column, cell)
            assert not (isinstance(cell, float) and math.isnan(cell))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("make", [comparison, two_algorithms, wards, under_way, lower_is_better])
def test_every_cell_is_of_its_columns_kind(name: str, make: object) -> None:
    assert callable(make)
    frame = table([make()], name)
    assert frame.rows
    check(frame)


def test_the_table_of_rounds_holds_the_records() -> None:
    view = comparison()
    frame = table([view], "rounds")
    assert len(frame.rows) == len(view.rounds)
    for row, r in zip(frame.rows, view.rounds, strict=True):
        assert {name: row[name] for name in ("method", "seed", "session", "round", "loss")} == {
            "method": r.method,
            "seed": r.seed,
            "session": r.session,
            "round": r.round,
            "loss": r.loss,
        }
        assert row["accuracy"] == r.accuracy


def test_the_measure_gives_its_column_the_name() -> None:
    assert "rmse" in table([lower_is_better()], "rounds").names
    assert "rmse" in table([lower_is_better()], "starts").names


def test_the_summary_is_the_comparisons_table() -> None:
    view = comparison()
    rows = summary_rows(view.rounds, windows=[2], pilot=1, setting={})
    for row in table([view], "summary").rows:
        if row["transition"] is not None:
            own = [
                r["accuracy"]
                for r in rows
                if (r["method"], r["session"]) == (row["method"], row["session"])
            ]
            assert (row["mean"], row["deviation"]) == pytest.approx(mean_and_deviation(own))
            assert row["seeds"] == len(own) == 2


def test_over_all_transitions_the_summary_is_the_metrics() -> None:
    view = comparison()
    metrics = metrics_of(view.config, view.rounds, view.events, TARGETS)
    known = {(w.method, w.transition): mean_and_deviation(w.accuracies) for w in metrics.windows}
    rows = table([view], "summary").rows
    assert {(row["method"], row["transition"]) for row in rows} == set(known)
    for row in rows:
        mean = known[row["method"], row["transition"]]
        assert (row["mean"], row["deviation"]) == pytest.approx(mean)


def test_the_best_mean_is_marked() -> None:
    for view, pick in ((comparison(), max), (lower_is_better(), min)):
        rows = table([view], "summary").rows
        for transition in {row["transition"] for row in rows}:
            own = [row for row in rows if row["transition"] == transition]
            best = pick(row["mean"] for row in own)
            assert [row["best"] for row in own] == [row["mean"] == best for row in own]


def test_a_mean_over_fewer_seeds_is_no_comparison() -> None:
    rows = table([under_way()], "summary").rows
    assert {row["seeds"] for row in rows} == {1}  # no session with a choice under the second seed
    view = under_way()
    longer = [r for r in comparison().rounds if r.seed == 1 or r.session < 5]
    rows = table([replace(view, rounds=longer)], "summary").rows
    known = {row["transition"]: row["mean"] is not None for row in rows}
    assert known == {1: True, 2: False, None: False}


def test_devices_have_their_names_visits_and_scores() -> None:
    view = wards()
    rows = table([view], "devices").rows
    tested = {(e["method"], e["session"]): e["each"] for e in view.events if e["event"] == "tested"}
    assert {row["name"] for row in rows} == set(HOSTILE)
    for row in rows:
        assert row["accuracy"] == tested[row["method"], row["session"]][str(row["device"])]
    assert {row["visit"] for row in rows if row["session"] == 1} == {"joined"}
    assert {row["visit"] for row in rows if row["session"] == 3} == {"returned"}


def test_costs_add_up() -> None:
    view = comparison()
    rows = table([view], "costs").rows
    for usage in spending(view).usages:
        own = [
            row
            for row in rows
            if (row["method"], row["seed"], row["session"])
            == (usage.method, usage.seed, usage.session)
        ]
        whole = [*usage.rounds, usage.probe, usage.survey]
        assert math.isclose(sum(r["seconds"] for r in own), sum(cost.latency for cost in whole))
        assert math.isclose(sum(r["bytes_up"] for r in own), sum(cost.up for cost in whole))
    assert {row["part"] for row in rows} == {"training", "probe", "survey"}


def test_weights_of_starts_that_average_add_up_to_one() -> None:
    rows = [r for r in table([comparison()], "starts").rows if r["method"] != "learned"]
    for key in {(r["method"], r["seed"], r["session"]) for r in rows}:
        own = [r["weight"] for r in rows if (r["method"], r["seed"], r["session"]) == key]
        assert math.isclose(sum(own), 1, rel_tol=1e-6)


# --- several runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_several_runs_say_which_one_a_row_is_of(name: str) -> None:
    views = [comparison(), two_algorithms(), wards()]
    frame = table(views, name)
    check(frame)
    assert frame.names[0] == "run"
    assert set(frame.column("run")) == {view.name for view in views}
    assert "partition.alpha" in frame.names
    assert not {"methods", "settings.seeds", "settings.algorithm"} & set(frame.names)
    assert not any(name.startswith("lr.algorithms") for name in frame.names)
    for view in views:
        own = [row for row in frame.rows if row["run"] == view.name]
        assert {row["partition.kind"] for row in own} == {view.config.partition.kind}


def test_runs_of_one_name_are_numbered() -> None:
    views = [comparison(), comparison()]
    assert [view.name for view in named_apart(views)] == ["digits 1", "digits 2"]
    assert differing_settings(views) == {}


def test_a_setting_that_is_called_like_a_column_keeps_apart() -> None:
    other = comparison()
    config = other.config.model_copy(update={"rounds": 7})
    frame = table([comparison(), replace(other, config=config)], "sessions")
    check(frame)
    assert {"rounds", "settings.rounds"} <= set(frame.names)
    assert set(frame.column("settings.rounds")) == {3, 7}


# --- what cannot be ------------------------------------------------------------------------------


def test_an_unknown_table_gets_a_sentence() -> None:
    with pytest.raises(EbbflowError, match="no table 'sumary': did you mean summary"):
        table([comparison()], "sumary")


def test_without_a_run_or_a_round_there_is_no_table() -> None:
    with pytest.raises(EbbflowError, match="no run is named"):
        table([], "rounds")
    empty: RunView = replace(comparison(), rounds=[])
    with pytest.raises(EbbflowError, match="holds no rounds yet"):
        table([empty], "rounds")
