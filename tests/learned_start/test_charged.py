"""Charged starts: the bill delays everything, and who pays none is an ordinary run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chang2025.cells import Cell
from ebbflow import experiment
from ebbflow.runs.summary import curves
from learned_start import charged as module
from learned_start.charged import (
    AXES,
    METHODS,
    ChargedRow,
    cells,
    charged,
    mean_within,
    read_charged,
    run_charged,
)
from learned_start.page import charged as blocks
from learned_start.settings import DESIGN_SEEDS
from learned_start.tables import charged_table

SMALL = {
    "dataset": "digits",
    "algorithm": ["fedavg"],
    "methods": list(METHODS),
    "partition.devices": 8,
    "sessions": 4,
    "rounds": 3,
    "pilot.rounds": 2,
}


def small(seed: int = 7) -> Cell:
    return Cell(f"digits-small-s{seed}", {**SMALL, "seeds": [seed]})


# --- the mean within a budget -------------------------------------------------------------------

curve = st.lists(st.floats(0, 100), min_size=1, max_size=8)


@given(curve, st.floats(0.1, 3), st.floats(0, 30))
def test_a_bill_never_helps_a_curve_that_rises(
    values: list[float], each: float, bill: float
) -> None:
    rising = sorted(values)
    lengths = [each] * len(rising)
    free, paid = mean_within(rising, lengths, 0.0), mean_within(rising, lengths, bill)
    assert 0 <= paid <= free + 1e-9
    assert free <= rising[-1] + 1e-9


@given(curve, st.floats(0.1, 3))
def test_without_a_bill_it_is_the_mean_of_all_but_the_last_round(
    values: list[float], each: float
) -> None:
    """The last round ends with the budget; the first has no model yet."""
    expected = sum(values[:-1]) / len(values)
    assert mean_within(values, [each] * len(values), 0.0) == pytest.approx(expected, abs=1e-9)


def test_a_bill_as_long_as_the_session_leaves_nothing() -> None:
    assert mean_within([80.0, 90.0], [1.0, 1.0], 1.0) == 0
    assert mean_within([80.0, 90.0], [1.0, 1.0], 5.0) == 0


# --- rows ---------------------------------------------------------------------------------------


def test_rows_are_those_of_an_ordinary_run_with_the_bill_of_its_costs() -> None:
    rows = charged(small())
    assert {(row.session, row.method) for row in rows} == {(4, method) for method in METHODS}
    assert {row.downlink for row in rows} == {"unicast", "multicast"}
    found = {(row.downlink, row.method): row for row in rows}
    ordinary = {
        key.method: curve
        for key, curve in curves(experiment.run(small().config).rounds).items()
        if key.session == 4
    }
    for downlink in ("unicast", "multicast"):
        for method in ("previous", "average"):
            row = found[downlink, method]
            assert row.bill == dict.fromkeys(AXES, 0.0)
            assert row.mean["rounds"] == pytest.approx(sum(ordinary[method][:-1]) / 3)
        for method in ("learned", "warm_start"):
            assert all(value > 0 for value in found[downlink, method].bill.values())
    # The paper's probe is one round of training on less data.
    assert found["unicast", "warm_start"].bill["rounds"] == pytest.approx(1, rel=1e-6)
    one, other = (found[downlink, "learned"].bill for downlink in ("unicast", "multicast"))
    assert other["rounds"] < one["rounds"]


def test_what_is_needed_includes_the_bill() -> None:
    for row in charged(small()):
        if row.needed is not None:
            rounds = row.needed["rounds"] - row.bill["rounds"]
            assert rounds == pytest.approx(round(rounds), abs=1e-9) and rounds >= 1
            assert row.needed["seconds"] > row.bill["seconds"]


def test_cells_are_the_papers_with_all_starts() -> None:
    found = list(cells(DESIGN_SEEDS))
    assert len({cell.name for cell in found}) == len(found) == 18
    assert all(cell.values["methods"] == list(METHODS) for cell in found)


# --- keeping and showing ------------------------------------------------------------------------


def test_what_is_kept_is_not_run_again_and_what_changed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cells", lambda seeds: (small(seed) for seed in seeds))
    said: list[str] = []
    run_charged([7], tmp_path, said.append)
    run_charged([7], tmp_path, said.append)
    assert said == ["digits-small-s7"]
    kept, fresh = read_charged([7], tmp_path), charged(small())
    assert [row[:5] for row in kept] == [row[:5] for row in fresh]
    for one, other in zip(kept, fresh, strict=True):
        assert one.mean == pytest.approx(other.mean, rel=1e-5)
    assert "unicast" in blocks(tmp_path) or "not run" in blocks(tmp_path)
    monkeypatch.setattr(module, "METHODS", ("learned",))
    assert read_charged([7], tmp_path) == []


def made(method: str, session: int, needed: float | None, bill: float) -> ChargedRow:
    along = dict.fromkeys(AXES, bill)
    reach = None if needed is None else dict.fromkeys(AXES, needed)
    return ChargedRow("x", "unicast", 7, session, method, along, reach, dict.fromkeys(AXES, 50.0))


def test_a_mean_is_over_the_transitions_at_which_all_arrive() -> None:
    rows = [made(method, 4, 2.0, 0.5 if method == "learned" else 0.0) for method in METHODS]
    rows += [made(method, 5, None if method == "average" else 9.0, 0.0) for method in METHODS]
    shown = {(row[0], row[1]): row[2:] for row in charged_table(rows).rows}
    assert shown["x", "learned"][:2] == ["2 of 2", "2 (0.5)"]
    assert shown["x", "average"][:2] == ["1 of 2", "2"]
    assert shown["all", "previous"] == shown["x", "previous"]
    assert math.isclose(float(shown["x", "learned"][-1]), 50.0)
