"""Transitions and window accuracies, by hand."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from ebbflow.metrics import mean_and_deviation, summary_rows, transition, window_accuracy
from ebbflow.records import Round

SETTING = {"dataset": "digits", "partition": "dirichlet", "overlap": 0.0, "alpha": 0.3}


def played(session: int, t: int, accuracy: float, method: str = "average", seed: int = 1) -> Round:
    return Round("fedavg", method, seed, session, t, accuracy, 0.5, 0.01, 4, 4)


@pytest.mark.parametrize(
    ("pilot", "sessions", "numbers"),
    [
        (1, 7, [None, None, None, 1, 2, 3, 4]),
        (3, 9, [None, None, None, None, None, 1, 2, 3, 4]),
        (1, 3, [None, None, None]),
    ],
)
def test_a_transition_is_counted_from_the_first_choice(
    pilot: int, sessions: int, numbers: list[int | None]
) -> None:
    assert [transition(s, pilot) for s in range(1, sessions + 1)] == numbers


@pytest.mark.parametrize(
    ("window", "mean"), [(1, 10.0), (2, 20.0), (3, 40.0), (4, 50.0), (5, 50.0), (100, 50.0)]
)
def test_a_window_is_the_mean_of_the_first_rounds(window: int, mean: float) -> None:
    assert window_accuracy([10.0, 30.0, 80.0, 80.0], window) == mean


def test_rows_have_exactly_these_keys() -> None:
    (row,) = summary_rows([played(4, 1, 12.5)], windows=[10], pilot=1, setting=SETTING)
    assert list(row) == [
        "dataset",
        "partition",
        "overlap",
        "alpha",
        "algorithm",
        "method",
        "seed",
        "session",
        "transition",
        "window",
        "accuracy",
    ]
    assert list(row.values())[4:] == ["fedavg", "average", 1, 4, 1, 10, 12.5]


def test_there_is_a_row_for_every_method_seed_session_and_window() -> None:
    cells = list(itertools.product(("average", "previous"), (1, 2), (1, 2, 3, 4)))
    rounds = [
        played(session, t, 10.0 * session + t + 100 * seed, method, seed)
        for method, seed, session in cells
        for t in (1, 2)
    ]
    rows = summary_rows(rounds, windows=[1, 2], pilot=1, setting=SETTING)
    assert len(rows) == 2 * len(cells)
    found = {(r["method"], r["seed"], r["session"], r["window"]): r["accuracy"] for r in rows}
    for method, seed, session in cells:
        assert found[method, seed, session, 1] == 10 * session + 1 + 100 * seed
        assert found[method, seed, session, 2] == 10 * session + 1.5 + 100 * seed


def test_the_order_in_which_methods_ran_does_not_show() -> None:
    blocks = [
        [played(s, t, float(t), m) for t in (1, 2)] for s in (1, 2) for m in ("previous", "average")
    ]
    shuffled = random.Random(3).sample(blocks, len(blocks))
    first, second = (
        summary_rows(itertools.chain(*order), windows=[1], pilot=1, setting=SETTING)
        for order in (blocks, shuffled)
    )
    assert first == second


def test_without_rounds_there_are_no_rows() -> None:
    assert summary_rows([], windows=[10], pilot=1, setting=SETTING) == []


def test_deviation_is_of_a_sample() -> None:
    mean, deviation = mean_and_deviation([1.0, 2.0, 6.0])
    assert mean == 3.0
    assert deviation == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert math.isnan(mean_and_deviation([5.0])[1])
