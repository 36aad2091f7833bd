"""Samples that say whose they are: devices with names, their own data and their own tests."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ebbflow.analysis.holdings import planned_holdings
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.core.types import Dataset, Examples
from ebbflow.data.owners import owned_rows
from ebbflow.experiment import resume, run
from ebbflow.runs.records import RunRecords, read_events
from ebbflow.simulation.roster import plan_sessions
from ebbflow.simulation.scores import DeviceScores, device_accuracies, summed_up
from tests.configs import digits, with_settings

WARDS = tuple(f"ward {number}" for number in range(1, 9))
SMALL = ("seeds=[1]", "rounds=2", "sessions=4", "engine.workers=1", "partition.kind=natural")


def config_of(*settings: str) -> Config:
    return with_settings(*SMALL, *settings)


def wards(tested: bool = True, count: int = 8) -> Dataset:
    """Return the digits, of which every ward has its own."""
    data = digits()
    train = replace(data.train, device=torch.arange(len(data.train)) % count)
    test = replace(data.test, device=torch.arange(len(data.test)) % count if tested else None)
    names = tuple(f"ward {number}" for number in range(1, count + 1))
    return replace(data, train=train, test=test, devices=names)


def events_of(records: RunRecords, kind: str) -> list[dict[str, object]]:
    return [event for event in records.events if event["event"] == kind]


# --- who holds what, and who is here -------------------------------------------------------------


def test_every_device_holds_its_own_samples_and_no_others() -> None:
    data = wards()
    sessions = plan_sessions(config_of(), data, 1).sessions
    assert [session.devices for session in sessions] == [(0, 1, 2, 3), (4, 5, 6, 7)] * 2
    assert data.train.device is not None
    for session in sessions:
        for device, rows in session.shards.items():
            assert set(data.train.device[rows].tolist()) == {device}
            assert len(rows) == int((data.train.device == device).sum()) == session.samples(device)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200))
def test_the_rows_of_all_owners_are_all_rows_in_order(owners: list[int]) -> None:
    device = torch.tensor(owners)
    found = owned_rows(
        Examples(torch.zeros(len(owners), 1), torch.zeros(len(owners)), None, device)
    )
    assert list(found) == sorted(set(owners))
    for owner, rows in found.items():
        assert rows.tolist() == [row for row, other in enumerate(owners) if other == owner]


def test_fewer_devices_than_half_may_take_turns_but_not_more() -> None:
    sessions = plan_sessions(config_of("partition.devices=3"), wards(), 1).sessions
    assert [session.devices for session in sessions[:2]] == [(0, 1, 2), (3, 4, 5)]
    with pytest.raises(EbbflowError, match="8 devices have training samples, and two groups of 5"):
        plan_sessions(config_of("partition.devices=5"), wards(), 1)


def test_a_trace_calls_devices_by_their_names(tmp_path: Path) -> None:
    trace = tmp_path / "wards.csv"
    trace.write_text(
        "time,device,event\n0,ward 7,join\n0,ward 2,join\n1,ward 1,join\n2,ward 7,leave\n"
        "3,ward 7,join\n4,ward 1,leave\n"
    )
    settings = ("schedule.kind=trace", f"schedule.file={trace}", "sessions=5")
    plan = plan_sessions(config_of(*settings), wards(), 1)
    assert [session.devices for session in plan.sessions] == [
        (1, 6),
        (0, 1, 6),
        (0, 1),
        (0, 1, 6),
        (1, 6),
    ]
    assert plan.names == WARDS
    (warning,) = [text for text in plan.warnings if "no session" in text]
    assert "5 of the 8 devices" in warning and "'ward 3'" in warning


def test_a_trace_of_strangers_is_refused_by_name(tmp_path: Path) -> None:
    trace = tmp_path / "wards.csv"
    trace.write_text("time,device,event\n0,ward 7,join\n0,ICU,join\n")
    config = config_of("schedule.kind=trace", f"schedule.file={trace}", "sessions=1")
    with pytest.raises(EbbflowError, match=r"'ICU'.* called like 'ward 1'"):
        plan_sessions(config, wards(), 1)


def test_at_random_the_same_devices_come_and_go_for_ever() -> None:
    settings = ("schedule.kind=random", "sessions=60", "schedule.stay=2.0", "schedule.away=2.0")
    sessions = plan_sessions(config_of(*settings), wards(), 1).sessions
    seen = {device for session in sessions for device in session.devices}
    assert seen == set(range(8))
    sizes = [len(session.devices) for session in sessions]
    assert 3 < np.mean(sizes) < 5
    assert len({session.devices for session in sessions[30:]}) > 10


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("schedule.arrivals=2.0", "schedule.arrivals = 2 has no use"),
        ("schedule.return_probability=0.9", "schedule.return_probability = 0.9 has no use"),
        ("partition.overlap=0.0", "partition.overlap = 0 has no use"),
    ],
)
def test_settings_that_devices_of_ones_own_do_not_need_are_refused(
    setting: str, sentence: str
) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        config_of("schedule.kind=random", setting)


def test_data_without_owners_cannot_be_divided_naturally() -> None:
    with pytest.raises(EbbflowError, match='"natural" needs samples that say whose they are'):
        plan_sessions(config_of(), digits(), 1)


def test_ten_thousand_devices_take_no_more_memory_than_their_samples() -> None:
    """The rows of all devices together are one array of the data's length."""
    samples = 100_000
    train = Examples(
        torch.zeros(samples, 1), torch.arange(samples) % 2, None, torch.arange(samples) % 10_000
    )
    data = Dataset("many", train, train, 2, tuple(f"d{n}" for n in range(10_000)))
    plan_sessions(config_of("sessions=2"), wards(), 1)  # imports
    tracemalloc.start()
    sessions = plan_sessions(config_of("sessions=50"), data, 1).sessions
    assert [len(session.devices) for session in sessions] == [5000] * 50
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


# --- own data -------------------------------------------------------------------------------------


def own(*settings: str) -> Config:
    return with_settings("dataset=mine", "seeds=[1]", "sessions=4", "rounds=1", *settings)


def test_owners_are_heeded_unless_the_user_says_otherwise() -> None:
    assert plan_sessions(own(), wards(), 1).names == WARDS
    assert (
        plan_sessions(own("partition.kind=dirichlet", "partition.devices=3"), wards(), 1).names
        == ()
    )
    assert len(plan_sessions(own(), digits(), 1).sessions[0].devices) == 20


def test_own_data_are_not_split_by_label_unless_the_user_says_so() -> None:
    """Two classes would otherwise give every session one class, and any model 100 percent."""
    data = digits()
    two = replace(
        data,
        train=replace(data.train, y=data.train.y % 2),
        test=replace(data.test, y=data.test.y % 2),
        classes=2,
    )
    assert [s.labels for s in plan_sessions(own(), two, 1).sessions] == [(0, 1)] * 4
    with pytest.raises(EbbflowError, match="every session of digits has a single label"):
        plan_sessions(own("partition.overlap=0.0"), two, 1)


# --- what is odd ----------------------------------------------------------------------------------


def test_sessions_of_the_same_devices_are_told(tmp_path: Path) -> None:
    trace = tmp_path / "wards.csv"
    trace.write_text("time,device,event\n0,ward 7,join\n5,ward 2,join\n")
    config = config_of("schedule.kind=trace", f"schedule.file={trace}", "sessions=6")
    warnings = plan_sessions(config, wards(), 1).warnings
    assert any("sessions 2, 3, 4, 5 have the same devices" in text for text in warnings)


def test_too_few_sessions_for_a_choice_are_told() -> None:
    few = plan_sessions(config_of("sessions=3"), wards(), 1).warnings
    assert any("set sessions to at least 4" in text for text in few)
    assert plan_sessions(config_of("sessions=4"), wards(), 1).warnings == ()


def test_one_session_with_one_label_is_told_and_named() -> None:
    data = wards()
    zero = torch.where(data.train.device == 0, 0, data.train.y)  # type: ignore[arg-type]
    data = replace(
        data,
        train=replace(data.train, y=zero),
        labels=("none", *(f"digit {n}" for n in range(1, 10))),
    )
    warnings = plan_sessions(config_of("partition.devices=1"), data, 1).warnings
    assert any("sessions 1, 3 have a single label (session 1: none)" in text for text in warnings)


def test_devices_without_test_samples_are_told() -> None:
    data = wards()
    assert data.test.device is not None
    some = replace(data, test=replace(data.test, device=data.test.device.clamp(min=2)))
    (warning,) = plan_sessions(config_of(), some, 1).warnings
    assert "2 of the 8 devices of digits have no test samples ('ward 1', 'ward 2')" in warning


def device_scores(
    right: NDArray[np.bool_], owners: NDArray[np.int64], present: Sequence[int]
) -> DeviceScores | None:
    return summed_up(device_accuracies(right, owners, present))


# --- tested on what -------------------------------------------------------------------------------


def score(records: RunRecords, method: str = "previous") -> list[float]:
    return [r.accuracy for r in records.rounds if r.method == method]


def test_devices_labels_or_all_are_tested() -> None:
    data = wards()
    both = "methods=['previous']"
    devices = run(config_of(both, "evaluation=devices"), dataset=data)
    labels = run(config_of(both, "evaluation=labels"), dataset=data)
    everything = run(config_of(both, "evaluation=all"), dataset=data)
    assert score(labels) == score(everything)  # every ward has all labels
    assert score(devices) != score(everything)
    for records in (devices, labels, everything):
        last = {r.session: r.accuracy for r in everything.rounds}
        for event in events_of(records, "tested"):
            assert event["all"] == last[event["session"]]  # type: ignore[index]


def test_without_owners_of_test_samples_devices_cannot_be_tested() -> None:
    with pytest.raises(EbbflowError, match='evaluation = "devices" needs test samples'):
        run(config_of("evaluation=devices"), dataset=wards(tested=False))


def test_sessions_without_test_samples_are_refused_before_anything_is_trained() -> None:
    data = wards()
    assert data.test.device is not None
    some = replace(data, test=replace(data.test, device=data.test.device % 4))
    with pytest.raises(EbbflowError, match="the 4 devices of session 2 have no test samples"):
        plan_sessions(config_of("evaluation=devices"), some, 1)
    assert plan_sessions(config_of("evaluation=all"), some, 1).sessions


def test_own_data_are_tested_by_device_where_that_is_possible() -> None:
    by_device = run(own("methods=['previous']"), dataset=wards())
    as_asked = run(own("methods=['previous']", "evaluation=devices"), dataset=wards())
    assert score(by_device) == score(as_asked)
    assert "devices" not in events_of(run(own(), dataset=wards(tested=False)), "tested")[0]


def test_accuracies_of_devices_are_those_of_their_samples() -> None:
    right = np.array([True, True, False, False, True, False])
    owners = np.array([0, 1, 1, 2, 3, 3])
    found = device_scores(right, owners, [0, 1, 3, 9])
    assert found is not None
    assert (found.devices, found.worst) == (3, 50.0)
    assert found.mean == pytest.approx(200 / 3)
    assert found.spread == pytest.approx(np.std([100, 50, 50]))
    assert device_scores(right, owners, [8]) is None


def test_the_worst_tenth_is_a_tenth_of_the_devices() -> None:
    owners = np.repeat(np.arange(30), 10)
    right = np.concatenate([np.arange(10) < n // 3 for n in range(30)])
    found = device_scores(right, owners, range(30))
    assert found is not None and found.worst == 0.0 and found.mean == 45.0


def test_a_summary_has_the_final_and_all_label_accuracy_and_that_of_devices() -> None:
    records = run(config_of(), dataset=wards())
    tested = {(e["method"], e["session"]): e for e in events_of(records, "tested")}
    last = {(r.method, r.session): r.accuracy for r in records.rounds}
    for row in records.rows:
        key = row["method"], row["session"]
        assert row["final"] == last[key]
        assert row["all_labels"] == tested[key]["all"]
        assert row["devices_worst"] <= row["devices_mean"]


# --- names stay names ----------------------------------------------------------------------------


def test_names_are_recorded_once_and_shown() -> None:
    data = replace(wards(), notes=("ages are standardised",))
    records = run(config_of("methods=['previous']"), dataset=data)
    (names,) = events_of(records, "names")
    assert names["names"] == list(WARDS)
    (note,) = events_of(records, "note")
    assert note["text"] == "ages are standardised"
    holdings = planned_holdings(config_of(), data)
    assert holdings.names == WARDS
    assert holdings.title == "digits, natural, seed 1"
    assert "ages are standardised" in holdings.remarks


def test_a_run_that_was_stopped_goes_on_the_same(tmp_path: Path) -> None:
    config, data = config_of("methods=['learned','previous']"), wards()
    whole = run(config, tmp_path / "whole", dataset=data)
    rounds = iter(range(100))
    with pytest.raises(RunStoppedError):
        run(config, tmp_path / "cut", dataset=data, stop=lambda: next(rounds) >= 4)
    cut = resume(tmp_path / "cut", dataset=data)
    assert cut.rounds == whole.rounds
    assert cut.rows == whole.rows
    lines = [
        [event for event in read_events(tmp_path / name) if event["event"] == "tested"]
        for name in ("whole", "cut")
    ]
    assert lines[0] == lines[1] and lines[0]
