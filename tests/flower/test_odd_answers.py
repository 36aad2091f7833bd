"""What one node answers may be nonsense: the others go on, and it is named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedTrimmedAvg, MultiKrum

from ebbflow.core.errors import EbbflowError
from ebbflow.flower import AskingTerms
from ebbflow.flower.bad_updates import BAD_UPDATES
from ebbflow.flower.saving import EVENTS
from ebbflow.flower.wire import EXAMPLES, metric_record
from tests.flower.stock import initial, stock_grid
from tests.flower.test_sessions import lines, numbers, sessions
from tests.flower.worlds import Federated, digest, federated, node_of, simulated

Metrics = dict[str, Any]
Change = Callable[[Metrics], Metrics]
NAN = float("nan")


def answering(app: ClientApp, change: Change, kind: str = "evaluate") -> ClientApp:
    """Return an app that answers one kind of message with other metrics."""
    odd = ClientApp()

    def changed(message: Message, context: Context) -> Message:
        content = app(message, context).content
        given = RecordDict(dict(content.array_records))
        for name, record in content.metric_records.items():
            given[name] = metric_record(change(dict(record)))
        return Message(given, reply_to=message)

    @odd.train()
    def train(message: Message, context: Context) -> Message:
        return changed(message, context) if kind == "train" else app(message, context)

    @odd.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return changed(message, context) if kind == "evaluate" else app(message, context)

    return odd


def test_a_metric_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    grid = stock_grid()
    plain = grid.nodes[102].app
    grid.nodes[102].app = answering(plain, lambda m: {**m, "train_loss": [1.0, 2.0]}, "train")
    sessions(tmp_path, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    said = "the metric train_loss is a list of 2, and in the others a number"
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3
    assert [line["used"] for line in rounds] == [[0, 1, 3, 4]] * 3


def test_lists_of_another_length_are_refused(tmp_path: Path) -> None:
    grid = stock_grid()
    for number, node in grid.nodes.items():
        node.app = answering(node.app, with_(by_label=[1.0] * (3 if number == 102 else 2)), "train")
    sessions(tmp_path, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    said = "the metric by_label is a list of 3, and in the others a list of 2"
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3


def test_evaluations_of_another_kind_are_left_out(tmp_path: Path) -> None:
    grid = stock_grid()
    grid.nodes[102].app = answering(grid.nodes[102].app, lambda m: {**m, "eval_acc": [1.0, 2.0]})
    sessions(tmp_path, sessions=1).run(grid, initial())
    found = [line["evaluate"]["eval_acc"] for line in lines(tmp_path) if line["round"]]
    assert all(isinstance(each, float) and each <= 1 for each in found)


@pytest.mark.parametrize("strategy", [FedAvg, FedTrimmedAvg, MultiKrum])
def test_evaluations_in_another_record_are_left_out(tmp_path: Path, strategy: Any) -> None:
    grid = stock_grid()
    plain, odd = grid.nodes[100].app, ClientApp()
    odd.train()(plain)

    @odd.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        (metrics,) = plain(message, context).content.metric_records.values()
        metrics["eval_acc"] = 2.0
        return Message(RecordDict({"mine": metrics}), reply_to=message)

    grid.nodes[100].app = odd
    sessions(tmp_path, strategy, sessions=1).run(grid, initial())
    found = [line["evaluate"]["eval_acc"] for line in lines(tmp_path) if line["round"]]
    assert len(found) == 3
    assert all(each <= 1 for each in found)


def without(name: str) -> Change:
    return lambda metrics: {key: value for key, value in metrics.items() if key != name}


def with_(**values: Any) -> Change:
    return lambda metrics: {**metrics, **values}


ODD: dict[str, tuple[Change, str]] = {
    "no loss": (without("eval_loss"), "which is the loss is not clear"),
    "two losses": (with_(more_loss=1.0), "which is the loss is not clear"),
    "a list": (with_(eval_loss=[1.0, 2.0]), "have no metric eval_loss"),
    "NaN": (with_(eval_loss=NAN), "its loss is nan"),
    "infinity": (with_(eval_loss=float("inf")), "its loss is inf"),
    "1e308": (with_(eval_loss=1e308), "its loss is 1e+308"),
}


@pytest.mark.parametrize("kind", ODD)
def test_one_odd_evaluation_does_not_end_a_learned_start(tmp_path: Path, kind: str) -> None:
    change, said = ODD[kind]
    grid = stock_grid()
    grid.nodes[102].app = answering(grid.nodes[102].app, change)
    result = sessions(tmp_path, start="learned").run(grid, initial())
    assert np.isfinite(numbers(result.arrays)).all()
    told = [line["said"] for line in lines(tmp_path, EVENTS) if line["event"] == "warning"]
    assert len(told) == 2  # in each of the two sessions with a survey, once
    assert all("(device 2: " in each and said in each for each in told), told


@pytest.mark.parametrize("count", [[1, 2], 0, -1, 1e30, NAN])
def test_a_count_that_cannot_be_interrupts_only_its_device(tmp_path: Path, count: Any) -> None:
    grid, answered = stock_grid(), 0

    def later(metrics: Metrics) -> Metrics:
        nonlocal answered
        answered += 1
        # The first question of both sessions is answered as it should be.
        return metrics if answered in (1, 5) else {**metrics, EXAMPLES: count}

    grid.nodes[102].app = answering(grid.nodes[102].app, later)
    sessions(tmp_path, start="learned", sessions=2).run(grid, initial())
    told = [line["said"] for line in lines(tmp_path, EVENTS) if line["event"] == "warning"]
    assert len(told) == 1
    assert "(device 2: its num-examples is " in told[0]


def test_a_mixture_that_is_no_good_is_not_the_devices_fault(tmp_path: Path) -> None:
    """One device says of everything that it is better than anything."""
    grid = stock_grid()
    grid.nodes[102].app = answering(grid.nodes[102].app, with_(eval_loss=-1e30))
    result = sessions(tmp_path, start="learned").run(grid, initial())
    assert np.isfinite(numbers(result.arrays)).all()
    told = [line["said"] for line in lines(tmp_path, EVENTS) if line["event"] == "warning"]
    assert not any("device 0: its loss is nan" in line for line in told), told


def test_past_models_without_a_finite_loss_end_only_the_survey(tmp_path: Path) -> None:
    grid = stock_grid()
    for node in grid.nodes.values():
        node.app = answering(node.app, with_(eval_loss=NAN))
    result = sessions(tmp_path, start="learned").run(grid, initial())
    assert np.isfinite(numbers(result.arrays)).all()
    begun = [line["said"] for line in lines(tmp_path, EVENTS) if line["event"] == "start"]
    assert len(begun) == 3


def test_an_app_without_a_clear_loss_is_told_so(tmp_path: Path) -> None:
    grid = stock_grid()
    for node in grid.nodes.values():
        node.app = answering(node.app, without("eval_loss"))
    with pytest.raises(EbbflowError, match="name it by Starting"):
        sessions(tmp_path, start="learned").run(grid, initial())


def listed(name: str, value: Callable[[list[float]], Any]) -> Change:
    """Return what changes a list, in the answers that have it."""
    return lambda metrics: {**metrics, name: value(metrics[name])} if name in metrics else metrics


def all_of(value: float, values: list[float]) -> list[float]:
    return [value] * len(values)


def million_times(values: list[float]) -> list[float]:
    return [1e6 * each for each in values]


ODD_SUMS: dict[str, Change] = {
    "no labels": without("learn"),
    "no labels at all": lambda metrics: without("learn")(without("judge")(metrics)),
    "a label too many": listed("learn", lambda values: [*values, 0.0]),
    "labels too many": lambda metrics: listed("learn", lambda values: [*values, 0.0])(
        listed("judge", lambda values: [*values, 0.0])(metrics)
    ),
    "NaN of a label": listed("learn", lambda values: [NAN] * len(values)),
    "less than no labels": listed("learn", lambda values: [-1.0] * len(values)),
    "1e308 of a label": listed("learn", lambda values: [1e308] * len(values)),
    "a million times its labels": lambda metrics: listed("learn", million_times)(
        listed("judge", million_times)(metrics)
    ),
    "1e30 times its sums": lambda metrics: {
        name: [1e30 * each for each in value] if isinstance(value, list) and many else value
        for many in ["weight" in metrics]
        for name, value in metrics.items()
    },
    "a number for labels": listed("learn", lambda values: 3.0),
    **{
        f"{value:g} in {name}": listed(name, partial(all_of, value))
        for name in ("weight", "losses", "products", "slope", "curvature")
        for value in (NAN, -1e308)
    },
    "NaN in expansions": lambda metrics: (
        {
            **metrics,
            **{name: [NAN] * len(metrics[name]) for name in ("losses", "slope", "curvature")},
        }
        if "slope" in metrics
        else metrics
    ),
    "NaN everywhere": lambda metrics: {
        name: [NAN] * len(value) if isinstance(value, list) else value
        for name, value in metrics.items()
    },
}


PASSED_OVER = ("nan in losses", "NaN in expansions")
"""Losses that are no numbers say that a mixture is no good: it is not chosen."""


@pytest.mark.parametrize("kind", ODD_SUMS)
def test_odd_sums_of_one_node_do_not_end_a_survey(tmp_path: Path, kind: str) -> None:
    truth = simulated(tmp_path, "fedavg", "previous", 2)
    here = federated(truth.world, tmp_path / "here")
    node = here.nodes[node_of(2)]
    node.app = answering(node.app, ODD_SUMS[kind])
    result = here.sessions("fedavg", "learned", 2).run(here.grid, here.initial)
    assert here.theta(result.arrays).isfinite().all()
    told = [line["said"] for line in lines(tmp_path / "here", EVENTS) if line["event"] == "warning"]
    if kind not in PASSED_OVER:
        assert len(told) == 1
        assert "in the survey, not all devices answered (device 2: its" in told[0] or (
            "(device 2: it tells 4 labels apart" in told[0]
        )


def with_all_members(here: Federated, change: Callable[[RecordDict], RecordDict]) -> Any:
    """Run two sessions of all five devices, of which one says something odd of its state."""
    node, odd = here.nodes[node_of(1)], ClientApp()
    plain = node.app
    odd.train()(plain)

    @odd.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        content = plain(message, context).content
        if message.content["config"].get("question") == "state":
            content = change(content)
        return Message(content, reply_to=message)

    node.app = odd
    made = here.sessions("scaffold", "previous", 2, terms=AskingTerms(min_nodes=5))
    return made.run(here.grid, here.initial)


@pytest.mark.parametrize("kind", BAD_UPDATES)
def test_a_state_that_cannot_be_is_that_of_a_newcomer(tmp_path: Path, kind: str) -> None:
    def lost(content: RecordDict) -> RecordDict:
        raise ValueError("nothing is left")

    truth = simulated(tmp_path, "scaffold", "previous", 2, **{"boundary.state": "keep"})
    other = federated(truth.world, tmp_path / "other")
    expected = other.theta(with_all_members(other, lost).arrays)
    here = federated(truth.world, tmp_path / "here")
    result = here.theta(with_all_members(here, BAD_UPDATES[kind].spoil).arrays)
    told = [line["said"] for line in lines(tmp_path / "here", EVENTS) if line["event"] == "warning"]
    assert len(told) == 1
    assert "session 2: device 1 begins with a fresh state: " in told[0]
    assert BAD_UPDATES[kind].said in told[0]
    assert digest(result) == digest(expected)
    assert not any(line["refused"] for line in lines(tmp_path / "here"))


def test_who_has_lost_its_state_is_named_with_the_reason(tmp_path: Path) -> None:
    truth = simulated(tmp_path, "scaffold", "previous", 2, **{"boundary.state": "keep"})
    here = federated(truth.world, tmp_path / "here")

    def losing(messages: list[Any]) -> None:
        if messages[0].content["config"].get("question") == "state":
            for path in (tmp_path / "here" / "node1").iterdir():
                path.unlink()

    here.grid.before_push = losing
    with_all_members(here, lambda content: content)
    told = [line["said"] for line in lines(tmp_path / "here", EVENTS) if line["event"] == "warning"]
    assert len(told) == 1
    assert "device 1 begins with a fresh state: error 2: the state after the upload 1-3" in told[0]
