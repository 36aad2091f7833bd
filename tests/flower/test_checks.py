"""Bad updates are refused and named; the round is then the one without the node."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.algorithm import Upload
from ebbflow.flower.bad_updates import BAD_UPDATES
from ebbflow.flower.checks import Checks, Expected, another_of, shapes_of
from ebbflow.flower.strategy import upload_lengths
from ebbflow.flower.wire import form_of, upload_record
from tests.flower.stock import initial, stock_grid
from tests.flower.test_sessions import lines, numbers, sessions
from tests.flower.worlds import digest, federated, node_of, simulated

BAD = 102  # the node in the middle


@pytest.mark.parametrize("kind", BAD_UPDATES)
def test_a_round_with_a_bad_update_is_the_round_without_it(tmp_path: Path, kind: str) -> None:
    grid = stock_grid()
    grid.nodes[BAD].spoil = BAD_UPDATES[kind].spoil
    told: list[str] = []
    spoilt = sessions(tmp_path / "with", sessions=1, tell=told.append).run(grid, initial())
    without = stock_grid()
    without.nodes[BAD].online = False
    truth = sessions(tmp_path / "without", sessions=1).run(without, initial())
    assert (numbers(spoilt.arrays) == numbers(truth.arrays)).all()
    rounds = [line for line in lines(tmp_path / "with") if line["round"]]
    assert [list(line["refused"]) for line in rounds] == [["2"]] * 3
    said = [line for line in told if "the update of device 2 was refused" in line]
    assert len(said) == 3
    assert all(BAD_UPDATES[kind].said in line for line in said), said


@pytest.mark.parametrize("kind", BAD_UPDATES)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_the_same_with_our_own_algorithms(tmp_path: Path, kind: str, algorithm: str) -> None:
    truth = simulated(tmp_path, algorithm, "previous", 2)
    here = federated(truth.world, tmp_path / kind)
    here.nodes[node_of(1)].spoil = BAD_UPDATES[kind].spoil
    told: list[str] = []
    result = here.sessions(algorithm, "previous", 1, tell=told.append).run(here.grid, here.initial)
    other = federated(truth.world, tmp_path / "silent")
    for node in other.nodes.values():
        node.spoil = _nothing if node is other.nodes[node_of(1)] else None
    expected = other.sessions(algorithm, "previous", 1).run(other.grid, other.initial)
    assert digest(here.theta(result.arrays)) == digest(other.theta(expected.arrays))
    said = [line for line in told if "the update of device 1 was refused" in line]
    assert len(said) == 3
    assert all(BAD_UPDATES[kind].said in line for line in said), said


@pytest.mark.parametrize("name", ["delta", "extra/c"])
def test_every_part_of_an_upload_is_compared_with_the_others(tmp_path: Path, name: str) -> None:
    truth = simulated(tmp_path, "scaffold", "previous", 2)
    honest = federated(truth.world, tmp_path / "honest")
    result = honest.sessions("scaffold", "previous", 1).run(honest.grid, honest.initial)
    usual = honest.theta(result.arrays).norm()
    here = federated(truth.world, tmp_path / "here")
    here.nodes[node_of(1)].spoil = partial(_longer, name)
    told: list[str] = []
    result = here.sessions("scaffold", "previous", 1, tell=told.append).run(here.grid, here.initial)
    part = "update" if name == "delta" else "array extra/c"
    said = [line for line in told if "the update of device 1 was refused" in line]
    assert len(said) == 3
    assert all(f"refused: the {part} is " in line for line in said), said
    assert here.theta(result.arrays).norm() < 2 * usual


def _longer(name: str, content: RecordDict) -> RecordDict:
    """Add a million to each entry of one array."""
    arrays = content.array_records["upload"]
    arrays[name] = Array(arrays[name].numpy() + np.float32(1e6))
    return content


def test_buffers_are_compared_as_well() -> None:
    model = form_of(initial()).state(initial())
    replies = {}
    for device in range(3):
        long = 1e6 if device == 2 else 1.0
        samples = torch.tensor(40.0)
        one = Upload(model.theta, samples * model.buffers * long, samples, samples / 40, {})
        content = upload_record(one)
        replies[device] = type("Reply", (), {"content": content})()
    shapes = shapes_of(replies[0].content.array_records["upload"])
    found = Checks().refusals(replies, Expected(shapes, upload_lengths))
    assert found == {2: "the array buffers is 1e+06 times the median length"}


def test_all_nodes_but_one_may_call_their_records_as_they_like(tmp_path: Path) -> None:
    grid = stock_grid()
    for number, node in grid.nodes.items():
        node.spoil = None if number == BAD else BAD_UPDATES["another name for the arrays"].spoil
    sessions(tmp_path, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    said = "the record of arrays is called arrays instead of mine"
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3


def test_who_sends_many_records_has_no_vote_on_what_is_usual(tmp_path: Path) -> None:
    def stuffing(content: RecordDict) -> RecordDict:
        odd = {f"metrics{k}": MetricRecord({"num-examples": 40, "more": 1}) for k in range(9)}
        return RecordDict({**content.array_records, **odd})

    grid = stock_grid()
    grid.nodes[BAD].spoil = stuffing
    sessions(tmp_path, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    said = "the reply has 9 records of metrics instead of one"
    assert [line["refused"] for line in rounds] == [{"2": said}] * 3


def _nothing(content: RecordDict) -> RecordDict:
    return RecordDict({"metrics": content.metric_records["metrics"]})


def test_stock_flower_takes_them_or_stops() -> None:
    outcomes: dict[str, str] = {}
    for kind, bad in BAD_UPDATES.items():
        grid = stock_grid()
        grid.nodes[BAD].spoil = bad.spoil
        try:
            arrays = FedAvg().start(grid, initial(), num_rounds=1).arrays
        except Exception as error:
            outcomes[kind] = type(error).__name__
        else:
            outcomes[kind] = "spoilt" if _far_off(arrays) else "taken"
    assert outcomes["NaN"] == outcomes["infinity"] == "spoilt"
    for kind in ("a missing array", "another name for the arrays", "another name for the metrics"):
        assert outcomes[kind] == "InconsistentMessageReplies"
    assert outcomes["another shape"] == "ValueError"
    assert outcomes["integers called float32"] == "spoilt"
    assert "refused" not in outcomes.values()


def _far_off(arrays: ArrayRecord) -> bool:
    found = [array.numpy() for array in arrays.values()]
    return any(not np.isfinite(each).all() or bool(np.abs(each).max() > 5) for each in found)


def _reply(arrays: ArrayRecord, **metrics: Any) -> Any:
    class Reply:
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})

    return Reply()


@given(
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    st.sampled_from([np.nan, np.inf, -np.inf]),
    st.integers(0, 3),
)
def test_one_entry_that_is_not_finite_is_enough(
    values: list[float], bad: float, place: int
) -> None:
    sent = ArrayRecord({"w": Array(np.zeros(4, dtype=np.float32))})
    fine = np.array(values, dtype=np.float32)
    spoilt = fine.copy()
    spoilt[place] = bad
    replies = {
        k: _reply(ArrayRecord({"w": Array(w)}), **{"num-examples": 3})
        for k, w in enumerate([fine, spoilt, fine])
    }
    found = Checks().refusals(replies, another_of(sent))
    assert found == {1: "the update is not finite"}


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=9), st.floats(2, 1e6))
def test_lengths_are_compared_with_the_median(lengths: list[float], factor: float) -> None:
    sent = ArrayRecord({"w": Array(np.zeros(1))})
    middle = float(np.median([*lengths, 1e9]))
    replies = {
        k: _reply(ArrayRecord({"w": Array(np.array([length]))}), **{"num-examples": 1})
        for k, length in enumerate([*lengths, 1e9])
    }
    found = Checks(norm=factor).refusals(replies, another_of(sent))
    expected = {k for k, n in enumerate([*lengths, 1e9]) if n > factor * middle}
    assert set(found) == expected


def test_an_array_whose_bytes_are_nonsense_is_refused() -> None:
    sent = ArrayRecord({"w": Array(np.zeros(4))})
    broken = Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=b"\x93NUMPYnonsense")
    replies = {0: _reply(ArrayRecord({"w": broken}), **{"num-examples": 1})}
    found = Checks().refusals(replies, another_of(sent))
    assert "cannot be read" in found[0]


def test_what_a_stranger_names_does_not_fill_the_log() -> None:
    sent = ArrayRecord({"w": Array(np.zeros(4))})
    odd = ArrayRecord({"w": sent["w"], "x\nsession 1 is over" + 10**6 * "!": sent["w"]})
    found = Checks().refusals({0: _reply(odd, **{"num-examples": 1})}, another_of(sent))
    assert found[0].startswith("the array x session 1 is over!!!")
    assert len(found[0]) == 300


def test_an_array_of_another_shape_than_it_says_is_refused() -> None:
    sent = ArrayRecord({"w": Array(np.zeros(4))})
    larger = Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=Array(np.ones(9)).data)
    replies = {0: _reply(ArrayRecord({"w": larger}), **{"num-examples": 1})}
    found = Checks().refusals(replies, another_of(sent))
    assert found == {0: "the array w says (4,) and holds (9,)"}
