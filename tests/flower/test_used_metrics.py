"""Metrics that a model is made of are checked; those that are only reported cost nobody a thing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    FedAvg,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from ebbflow.flower.saving import EVENTS
from tests.flower.stock import initial, stock_grid
from tests.flower.test_odd_answers import Change, answering, with_, without
from tests.flower.test_sessions import lines, numbers, sessions
from tests.flower.watched import WatchedGrid

BAD = 102
NAN, INF = float("nan"), float("inf")


def spoilt(change: Change, kind: str = "train") -> WatchedGrid:
    """Return five nodes, of which the one in the middle sends other metrics."""
    grid = stock_grid()
    grid.nodes[BAD].app = answering(grid.nodes[BAD].app, change, kind)
    return grid


def without_the_node(folder: Path, strategy: Any) -> np.ndarray:
    """Return the model after a session of the four others."""
    grid = stock_grid()
    grid.nodes[BAD].online = False
    return numbers(sessions(folder, strategy, sessions=1).run(grid, initial()).arrays)


def fair(q: float = 0.2) -> Any:
    def factory() -> Strategy:
        return QFedAvg(client_learning_rate=0.1, q=q)

    return factory


LOSSES: dict[str, tuple[Change, str]] = {
    "NaN": (with_(train_loss=NAN), "train_loss is nan, not a number from 0 to 1e+30"),
    "infinity": (with_(train_loss=INF), "train_loss is inf, not a number from 0 to 1e+30"),
    "below zero": (with_(train_loss=-0.5), "train_loss is -0.5, not a number from 0 to 1e+30"),
    "beyond all": (with_(train_loss=1e300), "train_loss is 1e+300, not a number from 0 to 1e+30"),
    "none": (without("train_loss"), "the reply does not say its train_loss"),
    "a list": (with_(train_loss=[1.0]), "train_loss is [1.0], not a number from 0 to 1e+30"),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_that_updates_are_weighted_by_is_checked(tmp_path: Path, kind: str) -> None:
    change, said = LOSSES[kind]
    told: list[str] = []
    here = sessions(tmp_path / "with", fair(), sessions=1, tell=told.append)
    result = here.run(spoilt(change), initial())
    assert (numbers(result.arrays) == without_the_node(tmp_path / "without", fair())).all()
    rounds = [line for line in lines(tmp_path / "with") if line["round"]]
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3
    assert [line["used"] for line in rounds] == [[0, 1, 3, 4]] * 3
    where = "session 1, round 2: the update of device 2 was refused"
    assert f"{where}: {said}" in told


def test_the_loss_is_checked_under_the_name_that_the_strategy_has_for_it(tmp_path: Path) -> None:
    def factory() -> Strategy:
        return QFedAvg(client_learning_rate=0.1, train_loss_key="own")

    grid = stock_grid()
    for number, node in grid.nodes.items():
        own = with_(own=-1.0 if number == BAD else 0.7, train_loss=-3.0)
        node.app = answering(node.app, own, "train")
    sessions(tmp_path, factory, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    said = "own is -1.0, not a number from 0 to 1e+30"
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("loss", [0.0, "largest"])
def test_the_least_and_the_largest_loss_that_pass_make_a_model(
    tmp_path: Path, q: float, loss: Any
) -> None:
    value = 1e30 ** (1 / max(1.0, q)) if loss == "largest" else loss
    result = sessions(tmp_path, fair(q), sessions=1).run(spoilt(with_(train_loss=value)), initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert [(line["refused"], line["abandoned"]) for line in rounds] == [({}, "")] * 3
    assert np.isfinite(numbers(result.arrays)).all()


def test_a_loss_whose_power_is_too_large_is_refused(tmp_path: Path) -> None:
    sessions(tmp_path, fair(10.0), sessions=1).run(spoilt(with_(train_loss=1e4)), initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    said = "train_loss is 10000.0, not a number from 0 to 1000"
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3


def test_if_nobody_sends_the_loss_rounds_are_abandoned_and_say_why(tmp_path: Path) -> None:
    grid = stock_grid()
    for node in grid.nodes.values():
        node.app = answering(node.app, without("train_loss"), "train")
    result = sessions(tmp_path, fair(), sessions=1).run(grid, initial())
    assert (numbers(result.arrays) == numbers(initial())).all()
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert {line["abandoned"] for line in rounds} == {"0 of 5 updates are left, and 2.5 are needed"}
    said = "the reply does not say its train_loss"
    assert [set(line["refused"].values()) for line in rounds] == [{said}] * 3


@pytest.mark.parametrize("bit", [NAN, 7, -1, None])
def test_the_bit_of_adaptive_clipping_is_zero_or_one(tmp_path: Path, bit: float | None) -> None:
    def factory() -> Strategy:
        return DifferentialPrivacyClientSideAdaptiveClipping(
            FedAvg(fraction_evaluate=0.0), 0.3, num_sampled_clients=4
        )

    grid = stock_grid()
    for number, node in grid.nodes.items():
        said = bit if number == BAD else 1
        change = with_() if said is None else with_(norm_bit=said)
        node.app = answering(node.app, change, "train")
    sessions(tmp_path, factory, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    why = "the reply does not say its norm_bit"
    if bit is not None:
        why = f"norm_bit is {bit!r}, not a number from 0 to 1"
    assert [line["refused"] for line in rounds] == [{"2": why}] * 3
    assert [line["abandoned"] for line in rounds] == [""] * 3


@pytest.mark.parametrize("strategy", [FedAvg, MultiKrum])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_metric_that_is_only_reported_costs_no_update_and_is_named(
    tmp_path: Path, strategy: Any, value: float
) -> None:
    told: list[str] = []
    here = sessions(tmp_path / "odd", strategy, sessions=1, tell=told.append)
    result = here.run(spoilt(with_(train_loss=value)), initial())
    plain = sessions(tmp_path / "plain", strategy, sessions=1).run(stock_grid(), initial())
    assert (numbers(result.arrays) == numbers(plain.arrays)).all()
    rounds = [line for line in lines(tmp_path / "odd") if line["round"]]
    assert [(line["used"], line["refused"]) for line in rounds] == [([0, 1, 2, 3, 4], {})] * 3
    assert [line["odd"] for line in rounds] == [{"2": f"train_loss is {value}"}] * 3
    what = f"the update of device 2 is used, but train_loss is {value}, so that a mean of it"
    assert [line for line in told if what in line] == [
        f"session 1, round {t}: {what} says nothing" for t in (1, 2, 3)
    ]
    # It can be gone on from, and read again.
    again = sessions(tmp_path / "odd", strategy, sessions=2).run(stock_grid(), initial())
    assert set(again.train_metrics_clientapp) == {1, 2, 3, 4, 5, 6}


def test_a_reported_metric_may_be_below_zero(tmp_path: Path) -> None:
    result = sessions(tmp_path, sessions=1).run(spoilt(with_(train_loss=-3.0)), initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert [(line["used"], line["odd"]) for line in rounds] == [([0, 1, 2, 3, 4], {})] * 3
    assert math.isfinite(mean_of(result.train_metrics_clientapp[3], "train_loss"))


def mean_of(metrics: Any, name: str) -> float:
    return float(metrics[name])


EVALUATIONS: dict[str, tuple[Change, str]] = {
    "NaN": (with_(eval_loss=NAN), "eval_loss is nan"),
    "infinity": (with_(eval_acc=INF), "eval_acc is inf"),
    "no samples": (with_(**{"num-examples": 0}), "num-examples is 0, not above 0"),
    "a list": (with_(eval_acc=[1.0, 2.0]), "the metric eval_acc is a list of 2"),
    "a metric too few": (without("eval_acc"), "the metric eval_acc is in this reply or"),
}


@pytest.mark.parametrize("kind", EVALUATIONS)
def test_an_evaluation_that_is_left_out_is_named(tmp_path: Path, kind: str) -> None:
    change, said = EVALUATIONS[kind]
    told: list[str] = []
    grid, asked = spoilt(change, "evaluate"), 0
    odd, plain = grid.nodes[BAD].app, stock_grid().nodes[BAD].app

    def later(messages: list[Any]) -> None:
        nonlocal asked
        asked += messages[0].metadata.message_type == "evaluate"
        grid.nodes[BAD].app = odd if asked > 1 else plain  # it answers the first question

    grid.before_push = later
    sessions(tmp_path, sessions=1, tell=told.append).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert [list(line["not_evaluated"]) for line in rounds] == [["2"]] * 3
    assert all(said in line["not_evaluated"]["2"] for line in rounds)
    assert all(math.isfinite(line["evaluate"]["eval_loss"]) for line in rounds)
    named = [line for line in told if "the evaluation leaves out device 2: " in line]
    assert [line.partition(":")[0] for line in named] == [
        f"session 1, round {t}" for t in (1, 2, 3)
    ]
    assert all(said in line for line in named)
    events = [line["said"] for line in lines(tmp_path, EVENTS) if line["event"] == "evaluation"]
    assert events == named


def test_who_fails_to_evaluate_or_is_late_is_named_once_for_each_reason(tmp_path: Path) -> None:
    def broken(metrics: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no test data")

    grid, asked = stock_grid(), 0
    bad = {n: answering(grid.nodes[n].app, broken) for n in (100, 101)}

    def later(messages: list[Any]) -> None:
        nonlocal asked
        evaluates = messages[0].metadata.message_type == "evaluate"
        asked += evaluates
        if asked == 2:
            for number, app in bad.items():
                grid.nodes[number].app = app
            grid.nodes[104].silent = evaluates

    grid.before_push = later
    told: list[str] = []
    sessions(tmp_path, sessions=1, tell=told.append).run(grid, initial())
    first = next(line for line in lines(tmp_path) if line["round"] == 1)
    assert list(first["not_evaluated"]) == ["0", "1", "4"]
    assert first["not_evaluated"]["4"] == "no answer in time"
    named = [line for line in told if line.startswith("session 1, round 1: the evaluation leaves")]
    assert len(named) == 2
    assert "leaves out devices 0, 1: error 2: " in named[0]
    assert named[1].endswith("leaves out device 4: no answer in time")


def test_who_cannot_be_a_member_for_what_it_answers_is_named(tmp_path: Path) -> None:
    grid = spoilt(with_(**{"num-examples": -3}), "evaluate")
    told: list[str] = []
    sessions(tmp_path, sessions=1, tell=told.append).run(grid, initial())
    assert {tuple(line["used"]) for line in lines(tmp_path) if line["round"]} == {(0, 1, 3, 4)}
    said = "session 1 begins without device 2: num-examples is -3, not from 1 to 1e+09"
    assert told.count(said) == 1


def test_bad_updates_of_a_probe_are_named(tmp_path: Path) -> None:
    grid = stock_grid()

    def spoil(content: Any) -> Any:
        (arrays,) = content.array_records.values()
        content["arrays"] = ArrayRecord(dict(list(arrays.items())[1:]))
        return content

    grid.nodes[BAD].spoil = spoil
    told: list[str] = []
    sessions(tmp_path, start="warm_start", sessions=2, tell=told.append).run(grid, initial())
    where = "session 2, round 1 of the probe: the update of device 2 was refused"
    assert [line for line in told if line.startswith(where)] == [
        f"{where}: the array layers.0.weight is missing"
    ]
