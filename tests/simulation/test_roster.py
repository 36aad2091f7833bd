"""Sessions made of the appendix's label distributions, from the configuration to the records."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.data.distributions import DISTRIBUTIONS
from ebbflow.experiment import resume, run
from ebbflow.simulation.roster import build_sessions
from tests.configs import digits, with_settings

SMALL = ("seeds=[100]", "rounds=2", "partition.devices=10", "sessions=4", "engine.workers=1")
kinds = pytest.mark.parametrize("kind", DISTRIBUTIONS)


def config_of(*settings: str) -> Config:
    return with_settings(*SMALL, *settings)


@kinds
@pytest.mark.parametrize("devices", [7, 20])
def test_two_halves_of_all_devices_take_turns(kind: str, devices: int) -> None:
    settings = (f"partition.kind={kind}", f"partition.devices={devices}", "sessions=5")
    sessions = build_sessions(config_of(*settings), digits(), 100)
    assert [s.index for s in sessions] == [1, 2, 3, 4, 5]
    first, second = sessions[0].devices, sessions[1].devices
    assert [s.devices for s in sessions] == [first, second, first, second, first]
    assert (len(first), len(second)) == (devices // 2, devices - devices // 2)
    assert sorted(first + second) == list(range(devices))
    # A device that comes back has its old samples, and no sample is on two devices.
    for device in first:
        np.testing.assert_array_equal(sessions[0].shards[device], sessions[2].shards[device])
    rows = np.concatenate([shard for s in sessions[:2] for shard in s.shards.values()])
    assert sorted(rows.tolist()) == list(range(len(digits().train)))


def test_half_and_partial_overlap_have_their_labels_group_a_first() -> None:
    for kind, labels in (
        ("half", [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]),
        ("partial_overlap", [(0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8, 9)]),
    ):
        sessions = build_sessions(config_of(f"partition.kind={kind}"), digits(), 100)
        assert [s.labels for s in sessions[:2]] == labels
        assert [s.devices for s in sessions[:2]] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]


@pytest.mark.parametrize("kind", ["two_shard", "distinct"])
def test_random_halves_are_drawn_by_the_seed(kind: str) -> None:
    config = config_of(f"partition.kind={kind}")
    one, same, other = (build_sessions(config, digits(), seed) for seed in (1, 1, 2))
    assert one[0].devices == same[0].devices
    assert one[0].devices != other[0].devices
    for device in one[0].devices:
        np.testing.assert_array_equal(one[0].shards[device], same[0].shards[device])


@kinds
def test_alpha_and_overlap_change_nothing_and_are_null_in_the_summary(
    kind: str, tmp_path: Path
) -> None:
    plain = run(config_of(f"partition.kind={kind}"), tmp_path / "plain", dataset=digits())
    settings = (f"partition.kind={kind}", "partition.alpha=7.0", "partition.overlap=0.5")
    assert run(config_of(*settings), dataset=digits()).rounds == plain.rounds
    for row in json.loads((tmp_path / "plain" / "summary.json").read_text())["rows"]:
        assert (row["partition"], row["alpha"], row["overlap"]) == (kind, None, None)
    assert resume(tmp_path / "plain", dataset=digits()).rows == plain.rows


def test_alpha_and_overlap_are_in_the_summary_where_they_count() -> None:
    found = run(config_of("partition.devices=4", "sessions=2"), dataset=digits())
    assert {(row["partition"], row["alpha"], row["overlap"]) for row in found.rows} == {
        ("dirichlet", 0.3, 0.0)
    }


@kinds
def test_other_schedules_are_refused(kind: str, tmp_path: Path) -> None:
    message = rf'partition.kind = "{kind}" .*schedule.kind = "random".*"groups", or choose dirichle'
    with pytest.raises(EbbflowError, match=message):
        run(
            config_of(f"partition.kind={kind}", "schedule.kind=random"),
            tmp_path / "out",
            dataset=digits(),
        )
    assert not (tmp_path / "out").exists()
    trace = tmp_path / "trace.csv"
    trace.write_text("time,device,event\n0,a,join\n")
    layers = Layers()
    layers.add({"partition": {"kind": kind}}, "test")
    layers.add({"schedule": {"kind": "trace", "file": str(trace)}}, "test")
    with pytest.raises(EbbflowError, match=r'schedule.kind = "trace" does not'):
        build_sessions(layers.config(), digits(), 100)


@kinds
@pytest.mark.parametrize(
    ("devices", "message"),
    [(1, r"`partition.devices` is 1, .*at least 2"), (5000, r"5000 devices .*only 1437 training")],
)
def test_too_few_and_too_many_devices_are_refused(kind: str, devices: int, message: str) -> None:
    config = config_of(f"partition.kind={kind}", f"partition.devices={devices}")
    with pytest.raises(EbbflowError, match=message):
        run(config, dataset=digits())


def test_a_misspelt_kind_is_told_apart() -> None:
    with pytest.raises(EbbflowError, match=r"did you mean partial_overlap\?.*two_shard, half"):
        run(config_of("partition.kind=partial-overlap"), dataset=digits())


# --- a pool that any number of devices draw from -------------------------------------------------

POOL = ("partition.kind=pool", "partition.samples=30")


def test_every_device_draws_its_own_samples_of_its_labels() -> None:
    sessions = build_sessions(config_of(*POOL, "partition.overlap=0.2"), digits(), 100)
    y = digits().train.y.numpy()
    assert [s.labels for s in sessions[:2]] == [(0, 1, 2, 3, 4), (4, 5, 6, 7, 8)]
    for session in sessions:
        for device in session.devices:
            rows = session.shards[device]
            assert len(rows) == len(set(rows.tolist())) == 30 == session.samples(device)
            assert set(y[rows].tolist()) <= set(session.labels)
            np.testing.assert_array_equal(rows, session.shards[device])
    a, b = (sessions[0].shards[device] for device in sessions[0].devices[:2])
    assert not np.array_equal(a, b)


def test_a_device_that_comes_back_has_its_old_samples_from_the_pool() -> None:
    sessions = build_sessions(config_of(*POOL), digits(), 100)
    for device in sessions[0].devices:
        np.testing.assert_array_equal(sessions[0].shards[device], sessions[2].shards[device])


def test_another_seed_draws_other_samples_from_the_pool() -> None:
    one, other = (build_sessions(config_of(*POOL), digits(), seed)[0] for seed in (1, 2))
    assert not np.array_equal(one.shards[0], other.shards[0])


def test_a_pool_runs_with_many_devices_and_both_engines_agree() -> None:
    settings = (*POOL, "partition.devices=40", "sessions=3")
    fast, slow = (
        run(config_of(*settings, f"engine.kind={kind}"), dataset=digits())
        for kind in ("vectorised", "sequential")
    )
    for a, b in zip(fast.rounds, slow.rounds, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
    assert {row["alpha"] for row in fast.rows} == {None}


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(EbbflowError, match=r"partition\.samples = 9999 is more than the \d+ train"):
        build_sessions(config_of("partition.kind=pool", "partition.samples=9999"), digits(), 100)


def test_samples_without_a_pool_are_refused() -> None:
    with pytest.raises(EbbflowError, match=r"partition\.samples = 5 has no use with"):
        config_of("partition.samples=5")


# --- random arrivals and departures --------------------------------------------------------------


@pytest.mark.parametrize(
    ("back", "memory"),
    [
        (0.0, 2.0),
        (0.5, 2.0 / (1 - 0.5)),
        (0.9, 2.0 / (1 - 0.9)),
        (1.0, 0.5),
    ],
)
def test_random_arrivals_keep_the_devices_that_were_asked_for(back: float, memory: float) -> None:
    """As many on average in the first sessions as in the later ones, whoever comes back.

    Devices are independent of each other, so K(j), the covariance of the numbers present j sessions
    apart, is at most 20 P(here now and then). It falls with j, and its sum over j > 0 is at most
    20 ``memory``: the mean time that a device will yet be here, stay / (1 - back). If all come
    back, K(j) = 40/4 exp(-j (1/stay + 1/away)), as of 40 devices each is here half of the time.
    """
    settings = ("schedule.kind=random", f"schedule.return_probability={back}")
    config = config_of(*POOL, *settings, "partition.devices=20", "sessions=150")
    assert (config.schedule.stay, config.schedule.away) == (2.0, 2.0)
    seeds = range(10)
    sizes = np.array(
        [[len(s.devices) for s in build_sessions(config, digits(), seed)] for seed in seeds]
    )
    for window in (sizes[:, :50], sizes[:, 50:]):
        sigma = np.sqrt(20 * (1 + 2 * memory) / window.size)
        assert window.mean() == pytest.approx(20, abs=4 * sigma)


def test_a_rate_of_arrivals_that_is_named_is_taken_as_it_is() -> None:
    """In the end arrivals * stay / (1 - back) = 40 devices are present, not the first 20."""
    settings = ("schedule.kind=random", "schedule.arrivals=10", "sessions=80")
    config = config_of(*POOL, *settings, "partition.devices=20")
    sizes = [[len(s.devices) for s in build_sessions(config, digits(), seed)] for seed in range(5)]
    assert [first[0] for first in sizes] == [20] * 5
    late = np.array(sizes)[:, 30:]
    assert late.mean() == pytest.approx(40, abs=4 * np.sqrt(40 * (1 + 2 * 4.0) / late.size))


# --- many devices that come and go ---------------------------------------------------------------


def test_what_a_long_schedule_holds_is_not_in_memory() -> None:
    config = config_of(*POOL, "schedule.kind=random", "partition.devices=1000", "sessions=50")
    build_sessions(config_of(*POOL, "schedule.kind=random"), digits(), 100)
    tracemalloc.start()
    sessions = build_sessions(config, digits(), 100)
    walked = [len(session.sizes or ()) for session in sessions]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Four bytes for each device of each session; a dictionary of its samples takes over a hundred.
    assert held < 4 * sum(walked) + 600_000
    assert 40_000 < sum(walked) < 60_000


def test_a_session_is_the_same_whenever_it_is_asked_for() -> None:
    for kind in (POOL, ("partition.kind=dirichlet",)):
        config = config_of(*kind, "schedule.kind=random", "partition.devices=12", "sessions=20")
        sessions = build_sessions(config, digits(), 100)
        forwards = list(sessions)
        for session in reversed(forwards):
            again = sessions[session.index - 1]
            assert (again.devices, again.labels) == (session.devices, session.labels)
            for device in session.devices:
                np.testing.assert_array_equal(again.shards[device], session.shards[device])
            held = np.concatenate([session.shards[device] for device in session.devices])
            assert set(digits().train.y[held].tolist()) <= set(session.labels)
