"""The work of devices, drawn again from what a run records, is what the run counted."""

from __future__ import annotations

from typing import Any

import pytest

from ebbflow import experiment
from ebbflow.analysis.device_work import (
    SessionDevices,
    probe_work,
    recorded_devices,
    training_work,
)
from ebbflow.core import counters
from tests.configs import with_keys

SETTINGS: dict[str, Any] = {
    "seeds": [3],
    "sessions": 3,
    "rounds": 3,
    "partition.kind": "dirichlet_labels",
    "partition.devices": 6,
    "methods": ["warm_start"],
    "engine.workers": 1,
    "local.batch": 16,
    "probe.rounds": 2,
}

CASES: dict[str, dict[str, Any]] = {
    "everyone": {},
    "drawn steps": {"local.steps": [1, 6], "probe.steps": [1, 4]},
    "half of them": {"participation.share": 0.5, "probe.share": 2},
    "weighted": {"participation.share": 3, "participation.weighting": "weighted"},
    "fresh draws": {"local.rule": "each_step", "local.steps": [2, 3], "participation.share": 0.5},
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_the_run_counted(case: str) -> None:
    config = with_keys(SETTINGS, CASES[case])
    run = experiment.run(config)
    present, stages = (
        {event["session"]: event for event in run.events if event["event"] == name}
        for name in ("start", counters.EVENT)
    )
    assert len(set(present[1]["samples"])) > 2  # the devices are unequal
    for session, event in present.items():
        devices = recorded_devices(event)
        counted = counters.read(stages[session]["stages"])
        taking_part = {r.round: r.participants for r in run.rounds if r.session == session}
        rounds = [training_work(config, devices, t, taking_part[t]) for t in taking_part]
        stage = counters.PILOT if session == 1 else counters.MAIN
        assert sum(len(work.devices) for work in rounds) == counted[stage].uploads
        assert sum(sum(work.samples or ()) for work in rounds) == counted[stage].samples
        if session > 1:
            probes = [probe_work(config, devices, v) for v in (1, 2)]
            probed = counted[counters.PROBE]
            assert sum(len(work.devices) for work in probes) == probed.uploads
            assert sum(sum(work.samples or ()) for work in probes) == probed.samples


def test_by_hand() -> None:
    config = with_keys({"local.steps": 2, "local.batch": 10, "probe.share": 1.0})
    devices = SessionDevices(1, 2, (4, 7, 9), (11, 35, 3), smallest_batch=2)
    # One pass in batches of ten: 10 + 1, of which the one is left out; 10 + 10; 3.
    assert training_work(config, devices, 1, 3) == ((4, 7, 9), (10, 20, 3))


def test_without_sizes_nothing_is_known_but_who_took_part() -> None:
    config = with_keys({})
    devices = recorded_devices({"seed": 1, "session": 2, "devices": [4, 7, 9]})
    assert training_work(config, devices, 1, 3) == ((4, 7, 9), None)
    assert len(training_work(config, devices, 1, 2).devices) == 2
