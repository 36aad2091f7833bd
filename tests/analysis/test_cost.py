"""What a round costs: by hand, against the paper's values, and as it must behave."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.algorithms import ALGORITHMS
from ebbflow.analysis.channel import mean_rate, noise_density
from ebbflow.analysis.cost import (
    BITS,
    MODELS,
    Errand,
    ModelSize,
    RoundCost,
    device_costs,
    draw_fleet,
    finish_together,
    round_cost,
    round_task,
    shares,
    total,
)
from ebbflow.analysis.run_costs import estimate
from ebbflow.config.schema import Wireless
from ebbflow.core.algorithm import Broadcast, LocalRun, Population

TINY, SVHN = MODELS["tinyimagenet"], MODELS["svhn"]


def ergodic(**given: Any) -> Wireless:
    return Wireless(fading="ergodic", **given)


# --- the task ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "seconds", "joules"),
    [
        # N_p phi e B = 21,730,056 x 27.69 x 5 x 128 = 3.850914e11; over 8e9 a second;
        # 1e-28 x 3.850914e11 / 8 x 1e18
        ("tinyimagenet", 48.1364, 4.81364),
        # 667,178 x 91.04 x 640 = 3.887353e10
        ("svhn", 4.85919, 0.485919),
        # 7,850 x 2 x 640 = 1.0048e7
        ("mnist", 1.256e-3, 1.256e-4),
    ],
)
def test_computation_by_hand(name: str, seconds: float, joules: float) -> None:
    wireless = ergodic()
    found = device_costs(
        wireless, draw_fleet(wireless, range(3), 1), round_task(wireless, MODELS[name])
    )
    np.testing.assert_allclose(found.computation, seconds, rtol=1e-5)
    np.testing.assert_allclose(found.energy_computation, joules, rtol=1e-5)


def test_a_device_by_hand() -> None:
    # One device at 100 m without shadowing: PL 85.3142 dB, psi 2.9409e-9; all of 1 MHz; noise
    # 3.98107e-15 W. The snr down is 20 psi / noise = 1.4774e7, up a hundredth of it.
    wireless = ergodic(distance=100.0, shadowing=0.0, bandwidth=1e6)
    task = Errand(1e6, 1e6, 0.0)
    found = device_costs(wireless, draw_fleet(wireless, [0], 1), task)
    # e^y E1(y) is nearly -gamma - ln y for small y: (ln 1.4774e7 - 0.57722) / ln 2 bit/s/Hz.
    down = (math.log(1.4774e7) - 0.57722) / math.log(2)
    up = (math.log(1.4774e5) - 0.57722) / math.log(2)
    assert found.down[0] == pytest.approx(1 / down, rel=1e-4)
    assert found.up[0] == pytest.approx(1 / up, rel=1e-4)
    assert found.energy[0] == pytest.approx(0.1 / down + 0.2 / up, rel=1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_payload_is_what_an_algorithm_broadcasts_and_uploads(name: str) -> None:
    algorithm, theta = ALGORITHMS[name](), torch.ones(50)
    server = algorithm.init_server(theta, Population(2, 20))
    sent, extras = algorithm.broadcast(theta, server)
    shared = Broadcast(sent, torch.zeros(0), extras)
    run = LocalRun(theta * 2, torch.zeros(0), 5, 5.0, 0.1, torch.tensor(10.0), theta)
    upload, _ = algorithm.upload(shared, algorithm.init_client(shared), run)
    down = sum(vector.numel() for vector in (sent, *extras.values()))
    up = sum(vector.numel() for vector in (upload.delta, *upload.extras.values()))
    task = round_task(Wireless(), ModelSize(50, 1.0), algorithm=name)
    # Numbers that go beside the vectors are not counted.
    assert task.down / 32 == pytest.approx(down, abs=5)
    assert task.up / 32 == pytest.approx(up, abs=5)


def test_scaffold_moves_twice_as_much_and_costs_more() -> None:
    wireless = ergodic()
    fleet = draw_fleet(wireless, range(10), 1)
    once, twice = (
        device_costs(wireless, fleet, round_task(wireless, SVHN, algorithm=name))
        for name in ("fedacg", "scaffold")
    )
    np.testing.assert_allclose(twice.down, 2 * once.down)
    np.testing.assert_allclose(twice.energy_up, 2 * once.energy_up)
    np.testing.assert_array_equal(twice.computation, once.computation)


@pytest.mark.parametrize("compression", BITS)
def test_compression_shortens_what_is_sent(compression: Any) -> None:
    plain, short = (round_task(Wireless(compression=kind), SVHN) for kind in ("none", compression))
    share = BITS[compression] / 32
    assert (short.down, short.up) == (share * plain.down, share * plain.up)
    assert short.operations == plain.operations


def test_counting_the_backward_pass_triples_the_work() -> None:
    once, thrice = (round_task(Wireless(passes=n), SVHN) for n in (1.0, 3.0))
    assert thrice.operations == pytest.approx(3 * once.operations)


# --- devices -------------------------------------------------------------------------------------


def test_a_device_is_the_same_whoever_else_takes_part() -> None:
    wireless = Wireless()
    everyone, some = (draw_fleet(wireless, who, 7, 2, 3) for who in (range(20), [4, 17]))
    np.testing.assert_array_equal(everyone.psi[[4, 17]], some.psi)
    assert some.fading == (everyone.fading[4], everyone.fading[17])


@pytest.mark.parametrize(
    ("redraw", "same"),
    [("round", [False, False]), ("session", [True, False]), ("run", [True, True])],
)
def test_positions_last_as_long_as_asked(redraw: Any, same: list[bool]) -> None:
    wireless = Wireless(redraw=redraw)
    first = draw_fleet(wireless, range(5), 1, 1, 1).psi
    next_round = draw_fleet(wireless, range(5), 1, 1, 2).psi
    next_session = draw_fleet(wireless, range(5), 1, 2, 1).psi
    assert [bool((first == psi).all()) for psi in (next_round, next_session)] == same
    assert not (first == draw_fleet(wireless, range(5), 2, 1, 1).psi).any()


def test_classes_of_devices_are_dealt_out_in_turn() -> None:
    wireless = Wireless(
        cpu=[1e9, 2e9], power_device=[0.1, 0.2, 0.3], distance=[50.0, 100.0], speed=[1.0, 2.0]
    )
    fleet = draw_fleet(wireless, [0, 1, 2, 5], 1)
    assert fleet.cpu.tolist() == [1e9, 2e9, 1e9, 2e9]
    assert fleet.power.tolist() == [0.1, 0.2, 0.3, 0.3]
    assert fleet.speed.tolist() == [1.0, 2.0, 1.0, 2.0]
    task = round_task(wireless, SVHN)
    found = device_costs(wireless, fleet, task)
    np.testing.assert_allclose(found.computation[0], 2 * found.computation[1])
    np.testing.assert_allclose(4 * found.energy_computation[0], found.energy_computation[1])


def test_devices_too_fast_for_a_slot_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"at 30 m/s: shorten wireless\.slot"):
        draw_fleet(Wireless(speed=[1.0, 30.0]), range(4), 1)


# --- bandwidth -----------------------------------------------------------------------------------


def test_shares() -> None:
    task = round_task(Wireless(), SVHN)
    for wireless, width in (
        (Wireless(allocation="equal"), 2.5e7),
        (Wireless(allocation="per_device"), 1e8),
    ):
        assert shares(wireless, draw_fleet(wireless, range(4), 1), task).tolist() == [width] * 4


@settings(max_examples=25)
@given(
    count=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    bandwidth=st.floats(1e5, 1e9),
    model=st.sampled_from(sorted(MODELS)),
    slow=st.floats(1.0, 20.0),
)
def test_shares_that_finish_together_add_up(
    count: int, seed: int, bandwidth: float, model: str, slow: float
) -> None:
    wireless = ergodic(
        allocation="finish_together", bandwidth=bandwidth, cpu=[1e9, 1e9 / slow], power_device=0.1
    )
    fleet = draw_fleet(wireless, range(count), seed)
    task = round_task(wireless, MODELS[model])
    width = finish_together(wireless, fleet, task)
    assert width.sum() == pytest.approx(bandwidth, rel=1e-9)
    assert (width > 0).all()
    found = device_costs(wireless, fleet, task).time
    np.testing.assert_allclose(found, found[0], rtol=1e-6)
    equal = device_costs(ergodic(bandwidth=bandwidth, cpu=[1e9, 1e9 / slow]), fleet, task).time
    assert found[0] <= equal.max() * (1 + 1e-9)


# --- one copy to all -----------------------------------------------------------------------------


def test_a_multicast_by_hand() -> None:
    # At 100 and 200 m with all of 1 MHz: as for a device by hand below, until the worse is there.
    wireless = ergodic(distance=[100.0, 200.0], shadowing=0.0, bandwidth=1e6, downlink="multicast")
    task = Errand(1e6, 1e6, 0.0)
    found = device_costs(wireless, draw_fleet(wireless, [0, 1], 1), task)
    alone = [
        device_costs(wireless, draw_fleet(wireless, [device], 1), task).down[0] for device in (0, 1)
    ]
    assert alone[0] < alone[1]
    assert found.down.tolist() == [alone[1], alone[1]]
    assert found.energy_down.tolist() == [0.1 * alone[1]] * 2
    down = (math.log(1.4774e7) - 0.57722) / math.log(2)
    assert alone[0] == pytest.approx(1 / down, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    fading=st.sampled_from(["slots", "ergodic"]),
    allocation=st.sampled_from(["equal", "per_device"]),
)
def test_a_multicast_takes_as_long_as_the_worst_device_alone(
    count: int, seed: int, fading: Any, allocation: Any
) -> None:
    costs = {}
    task = round_task(Wireless(), MODELS["mnist"])
    for downlink in ("unicast", "multicast"):
        wireless = Wireless(downlink=downlink, fading=fading, allocation=allocation)
        fleet = draw_fleet(wireless, range(count), seed)
        costs[downlink] = device_costs(wireless, fleet, task)
        moved = round_cost(wireless, fleet, task)
        copies = count if downlink == "unicast" else 1
        assert (moved.down, moved.up) == (copies * 7850 * 4, count * 7850 * 4)
    once = costs["multicast"]
    alone = [
        device_costs(wireless, draw_fleet(wireless, [device], seed), task).down[0]
        for device in range(count)
    ]
    assert once.down.tolist() == [max(alone)] * count
    np.testing.assert_array_equal(once.up, costs["unicast"].up)
    if count == 1:
        for mine, theirs in zip(once, costs["unicast"], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    if fading == "ergodic":
        assert once.down[0] <= costs["unicast"].down.max() * (1 + 1e-12)


def test_uploads_that_finish_together_after_a_multicast() -> None:
    wireless = ergodic(allocation="finish_together", downlink="multicast", cpu=[1e9, 9e8])
    fleet = draw_fleet(wireless, range(8), 1)
    task = round_task(wireless, SVHN)
    found = device_costs(wireless, fleet, task)
    assert shares(wireless, fleet, task).sum() == pytest.approx(1e8, rel=1e-9)
    np.testing.assert_allclose(found.time, found.time[0], rtol=1e-6)


def test_devices_may_be_sent_different_amounts() -> None:
    bits = np.array([1e6, 3e6, 2e6])
    for allocation in ("equal", "finish_together"):
        wireless = ergodic(allocation=allocation, distance=80.0, shadowing=0.0)
        fleet = draw_fleet(wireless, range(3), 1)
        found = device_costs(wireless, fleet, Errand(bits, 0.0, 0.0))
        assert round_cost(wireless, fleet, Errand(bits, 0.0, 0.0)).down == 6e6 / 8
        if allocation == "equal":
            np.testing.assert_allclose(found.down, found.down[0] * bits / 1e6)
        else:
            np.testing.assert_allclose(found.time, found.time[0], rtol=1e-6)


# --- rounds --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), width=st.floats(1e6, 1e9), more=st.floats(1.05, 4))
def test_more_bandwidth_is_never_slower(seed: int, width: float, more: float) -> None:
    costs = []
    for bandwidth in (width, more * width):
        wireless = ergodic(bandwidth=bandwidth)
        fleet = draw_fleet(wireless, range(10), seed)
        costs.append(round_cost(wireless, fleet, round_task(wireless, SVHN)))
    assert costs[1].latency <= costs[0].latency
    assert costs[1].energy <= costs[0].energy


@settings(max_examples=50)
@given(near=st.floats(10, 240), further=st.floats(0.1, 200), seed=st.integers(0, 10**6))
def test_further_away_is_slower(near: float, further: float, seed: int) -> None:
    costs = []
    for distance in (near, near + further):
        wireless = ergodic(distance=distance)
        fleet = draw_fleet(wireless, range(5), seed)
        costs.append(round_cost(wireless, fleet, round_task(wireless, SVHN)))
    assert costs[0].latency < costs[1].latency
    assert costs[0].energy < costs[1].energy


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=2, max_size=20), st.integers(0, 10**6))
def test_energy_is_additive_and_latency_the_slowest(side: list[bool], seed: int) -> None:
    wireless = ergodic(allocation="per_device", bandwidth=1e6)
    task = round_task(wireless, SVHN)
    groups = [[k for k, here in enumerate(side) if here is wanted] for wanted in (True, False)]
    parts = [round_cost(wireless, draw_fleet(wireless, who, seed), task) for who in groups if who]
    whole = round_cost(wireless, draw_fleet(wireless, range(len(side)), seed), task)
    assert whole.energy == pytest.approx(sum(part.energy for part in parts))
    assert whole.latency == max(part.latency for part in parts)
    assert whole.down == sum(part.down for part in parts) == len(side) * 667_178 * 4


def test_the_mean_device_may_count() -> None:
    fleet = draw_fleet(ergodic(), range(10), 1)
    task = round_task(ergodic(), SVHN)
    found = device_costs(ergodic(), fleet, task)
    assert round_cost(ergodic(latency="mean"), fleet, task).latency == found.time.mean()
    assert round_cost(ergodic(), fleet, task).latency == found.time.max()


def test_rounds_follow_each_other() -> None:
    one = RoundCost(1.0, 2.0, 3.0, 4.0)
    assert total([one] * 3) == one.times(3) == RoundCost(3.0, 6.0, 9.0, 12.0)


def test_short_transfers_are_followed_slot_by_slot_and_long_ones_are_not() -> None:
    wireless = Wireless()
    for name, followed in (("mnist", True), ("tinyimagenet", False)):
        fleet = draw_fleet(wireless, range(100), 1)
        up = device_costs(wireless, fleet, round_task(wireless, MODELS[name])).up / wireless.slot
        assert bool(np.allclose(up, np.round(up), rtol=0, atol=1e-6)) is followed


def test_the_mean_rate_is_what_devices_have() -> None:
    wireless = ergodic()
    fleet = draw_fleet(wireless, range(6), 1)
    task = round_task(wireless, SVHN)
    width = 1e8 / 6
    snr = 0.2 * fleet.psi / (noise_density(-174) * width)
    np.testing.assert_allclose(
        device_costs(wireless, fleet, task).up, task.up / mean_rate(width, snr)
    )


# --- the paper's values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reading", "seconds", "kilojoules"),
    [({}, 154, 1.75), ({"allocation": "per_device"}, 50.5, 0.504), ({"shadowing": 0.0}, 136, 1.74)],
)
def test_what_other_readings_give(
    reading: dict[str, Any], seconds: float, kilojoules: float
) -> None:
    wireless = ergodic(**reading)
    found = estimate(wireless, round_task(wireless, TINY), 100, draws=40).cost
    assert found.latency == pytest.approx(seconds, rel=0.02)
    assert found.energy == pytest.approx(1e3 * kilojoules, rel=0.01)


# --- speed ---------------------------------------------------------------------------------------


def test_a_hundred_devices_and_the_largest_model_are_fast_enough() -> None:
    exact, closed = Wireless(fading="slots"), ergodic()
    task = round_task(closed, TINY)
    assert task.down == pytest.approx(695e6, rel=1e-3)
    took = []  # processor time, for the machine may be busy with other things
    for wireless, repeats in ((exact, 2), (closed, 20)):
        best = math.inf
        for _ in range(repeats):
            fleet = draw_fleet(wireless, range(100), 1)
            began = time.process_time()
            found = device_costs(wireless, fleet, task)
            best = min(best, time.process_time() - began)
        took.append((best, found))
    (slow, slots), (fast, mean) = took
    assert slow < 4.0
    assert fast < 0.020
    np.testing.assert_allclose(mean.time, slots.time, rtol=0.01)
