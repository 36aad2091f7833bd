"""What a survey costs on the air: by hand, in limits, and whatever the devices hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.analysis.cost import (
    MODELS,
    Errand,
    ModelSize,
    RoundCost,
    draw_fleet,
    round_cost,
    round_task,
)
from ebbflow.analysis.survey_costs import (
    ROUND,
    Survey,
    recorded_survey,
    survey_cost,
    survey_share,
    whole_slots,
)
from ebbflow.config.schema import Wireless
from ebbflow.core.counters import Cost

SVHN = MODELS["svhn"]
NAMES = ["carried", "final 3", "start 3", "initial"]
START: dict[str, Any] = {
    "session": 6,
    "asked": [1, 4, 7],
    "mixture": dict.fromkeys(NAMES, 0.25),
}
SIZES = (1000, 200, 200, 200)
COUNTED = Cost(broadcasts=4, bytes_up=900, bytes_down=1660, questions=5, passes=3000)
PAST = {5: [1, 4, 9], 3: [4, 7]}


def ergodic(**given: Any) -> Wireless:
    return Wireless(fading="ergodic", **given)


def held(session: int) -> list[int]:
    return PAST.get(session, [])


def read(**given: Any) -> Survey:
    return recorded_survey(ergodic(**given), START, COUNTED, sizes=SIZES, holders=held)


# --- costs ---------------------------------------------------------------------------------------


def test_nothing_sent_and_nothing_asked_costs_nothing() -> None:
    assert survey_cost(Wireless(), SVHN, Survey((0, 1), (0.0, 0.0)), 1) == RoundCost()


@pytest.mark.parametrize("downlink", ["unicast", "multicast"])
@pytest.mark.parametrize("fading", ["slots", "ergodic"])
def test_models_alone_are_a_round_in_which_nothing_goes_up(downlink: Any, fading: Any) -> None:
    wireless = Wireless(downlink=downlink, fading=fading)
    found = survey_cost(wireless, SVHN, Survey((2, 5), (1e5, 1e5)), 1, 4)
    fleet = draw_fleet(wireless, [2, 5], 1, 4, ROUND)
    assert found == round_cost(wireless, fleet, Errand(8e5, 0.0, 0.0))
    assert (found.down, found.up) == (2e5 if downlink == "unicast" else 1e5, 0.0)


def test_questions_by_hand() -> None:
    # 24 bytes down and 112 up take a slot each; 30 of 300 passes at 8e4 operations take 0.3 ms.
    wireless = ergodic(shadowing=0.0, distance=100.0)
    size = ModelSize(8000, 10.0)
    survey = Survey((0, 1), (0.0, 0.0), 10, 240.0, 1120.0, 300.0)
    found = survey_cost(wireless, size, survey, 1)
    assert found.latency == pytest.approx(10 * (0.5e-3 + 0.3e-3 + 0.5e-3))
    joules = 0.1 * 0.5e-3 + 1e-28 * (8e4 * 30 / 8) * 1e18 + 0.2 * 0.5e-3
    assert found.energy == pytest.approx(2 * 10 * joules)
    assert (found.down, found.up) == pytest.approx((2 * 240, 2 * 1120))


def test_an_empty_message_takes_a_slot_too() -> None:
    survey = Survey((0, 1), (0.0, 0.0), questions=3)
    for fading in ("slots", "ergodic"):
        wireless = Wireless(fading=fading, distance=20.0, shadowing=0.0)
        found = survey_cost(wireless, SVHN, survey, 1)
        assert found.latency == pytest.approx(3 * 2 * wireless.slot)
        assert (found.down, found.up) == (0.0, 0.0)


def test_devices_wait_for_each_other_after_the_models_and_after_every_question() -> None:
    # The first device computes for a second, the second for two: in all, as long as the second.
    wireless = ergodic(cpu=[2e9, 1e9], distance=50.0, shadowing=0.0)
    size = ModelSize(8_000_000, 1000.0)
    survey = Survey((0, 1), (1e6, 2e6), 4, 0.0, 0.0, 2.0)
    models = survey_cost(wireless, size, survey._replace(questions=0), 1)
    found = survey_cost(wireless, size, survey, 1)
    assert found.latency == pytest.approx(models.latency + 2 + 4 * 2 * 0.5e-3)


def test_neither_compression_nor_passes_apply_to_a_survey() -> None:
    survey = Survey((0, 1, 2), (1e6,) * 3, 12, 500.0, 9000.0, 400.0)
    plain = survey_cost(ergodic(), SVHN, survey, 1)
    assert survey_cost(ergodic(compression="int8", passes=3.0), SVHN, survey, 1) == plain


def test_whole_slots_stay_as_they_are() -> None:
    seconds = 0.5e-3 * np.arange(1.0, 2000.0, dtype=np.float64)
    np.testing.assert_allclose(whole_slots(seconds, 0.5e-3), seconds, rtol=1e-12)
    assert whole_slots(np.array([1e-9]), 0.5e-3).tolist() == [0.5e-3]


def test_shares_that_finish_together_are_for_the_models_alone() -> None:
    together, equal = (
        survey_cost(
            ergodic(allocation=kind, cpu=[1e9, 5e8]), SVHN, Survey(tuple(range(6)), *rest), 1
        )
        for kind in ("finish_together", "equal")
        for rest in [((1e6,) * 6, 5, 400.0, 800.0, 50.0)]
    )
    assert together.latency < equal.latency
    assert (together.down, together.up) == (equal.down, equal.up)


surveys = st.builds(
    lambda count, first, size, questions, numbers, passes: Survey(
        tuple(range(first, first + count)),
        (float(size),) * count,
        questions,
        numbers * questions,
        3 * numbers * questions,
        passes,
    ),
    count=st.integers(1, 12),
    first=st.integers(0, 50),
    size=st.integers(0, 10**6),
    questions=st.integers(0, 20),
    numbers=st.floats(0, 2000),
    passes=st.floats(0, 1000),
)
channels = st.sampled_from(["equal", "per_device"]), st.sampled_from(["auto", "ergodic"])


@settings(max_examples=40, deadline=None)
@given(surveys, st.integers(0, 10**6), *channels)
def test_to_one_device_unicast_is_multicast(
    survey: Survey, seed: int, allocation: Any, fading: Any
) -> None:
    alone = survey._replace(devices=survey.devices[:1], models=survey.models[:1])
    costs = [
        survey_cost(
            Wireless(downlink=kind, allocation=allocation, fading=fading), SVHN, alone, seed
        )
        for kind in ("unicast", "multicast")
    ]
    assert costs[0] == costs[1]


@settings(max_examples=40, deadline=None)
@given(surveys, st.integers(0, 10**6))
def test_one_copy_to_all_is_no_slower_than_a_share_for_each_or_one_after_another(
    survey: Survey, seed: int
) -> None:
    shared, once = (
        survey_cost(ergodic(downlink=kind), SVHN, survey, seed) for kind in ("unicast", "multicast")
    )
    assert once.latency <= shared.latency * (1 + 1e-12)
    assert once.energy <= shared.energy * (1 + 1e-12)
    assert once.up == shared.up
    assert once.down * len(survey.devices) == pytest.approx(shared.down)
    quiet = survey._replace(questions=0)
    in_turn = [
        survey_cost(ergodic(), SVHN, Survey((device,), (size,)), seed).latency
        for device, size in zip(quiet.devices, quiet.models, strict=True)
    ]
    once = survey_cost(ergodic(downlink="multicast"), SVHN, quiet, seed)
    assert once.latency == pytest.approx(max(in_turn))
    assert once.latency <= math.fsum(in_turn) * (1 + 1e-12)


# --- records -------------------------------------------------------------------------------------


def test_a_survey_is_read_from_its_records() -> None:
    # 1600 of the 1660 bytes down are the models; the rest, and what went up, are the questions.
    assert read() == Survey((1, 4, 7), (1600.0,) * 3, 5, 60.0, 300.0, 1000.0)


def test_returning_devices_hold_final_models() -> None:
    # Device 1 was in session 5 (carried), device 7 in session 3 (final 3), device 4 in both.
    unicast = read(returning="hold")
    assert unicast.models == (600.0, 400.0, 1400.0)
    assert unicast[2:] == read()[2:]
    # Not all devices hold one of them, so all are sent again.
    assert read(returning="hold", downlink="multicast").models == (1600.0,) * 3
    PAST[3].append(1)
    try:
        assert read(returning="hold", downlink="multicast").models == (1400.0,) * 3
        assert read(returning="hold").models == (400.0, 400.0, 1400.0)
    finally:
        PAST[3].remove(1)


def test_models_of_another_size_and_questions_as_they_were() -> None:
    larger = recorded_survey(ergodic(), START, COUNTED, sizes=SIZES, scale=10.0)
    assert larger == read()._replace(models=(16000.0,) * 3)


@pytest.mark.parametrize("sizes", [(), (1000,), (1000, 1000, 1000, 1000)])
def test_where_sizes_are_not_known_all_bytes_are_the_models(sizes: tuple[int, ...]) -> None:
    found = recorded_survey(ergodic(), START, COUNTED, sizes=sizes)
    assert (found.models, found.asking) == ((1660.0,) * 3, 0.0)
    unnamed = {key: value for key, value in START.items() if key != "mixture"}
    assert recorded_survey(ergodic(), unnamed, COUNTED).models == (1660.0,) * 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 8)), min_size=6, max_size=6),
    st.integers(0, 10**6),
    st.sampled_from(["unicast", "multicast"]),
    *channels,
)
def test_holding_never_costs_more_than_sending(
    past: list[set[int]], seed: int, downlink: Any, allocation: Any, fading: Any
) -> None:
    start: dict[str, Any] = {
        "session": 6,
        "asked": list(range(0, 9, 2)),
        "mixture": dict.fromkeys(["carried", "final 2", "start 2", "final 4", "pilot"], 0.2),
    }
    cost = Cost(broadcasts=5, bytes_up=2000, bytes_down=50_400, questions=4, passes=500)
    found = {}
    for returning in ("send", "hold"):
        wireless = Wireless(
            downlink=downlink, returning=returning, allocation=allocation, fading=fading
        )
        survey = recorded_survey(
            wireless, start, cost, sizes=[10_000] * 5, holders=lambda session: past[session]
        )
        found[returning] = survey_cost(wireless, SVHN, survey, seed)
    send, hold = found["send"], found["hold"]
    for more, less in zip(send, hold, strict=True):
        assert less <= more * (1 + 1e-12)
    if all(set(start["asked"]) <= past[z] for z in (2, 4, 5)):
        assert hold.down < send.down


# --- a part of a round ---------------------------------------------------------------------------


def test_the_share_of_a_rounds_air_time() -> None:
    # One device: two models down, over one down and one up; it is half a round if both ways were
    # alike, and less because the way up is the slower.
    wireless = ergodic(distance=100.0, shadowing=0.0)
    task = round_task(wireless, SVHN)
    size = float(4 * SVHN.parameters)
    one, two = (
        survey_share(wireless, SVHN, Survey((0,), (n * size,), passes=9.0), task, 1, draws=2)
        for n in (1, 2)
    )
    fleet = draw_fleet(wireless, [0], 100)
    down, both = (
        round_cost(wireless, fleet, Errand(task.down, up, 0.0)).latency for up in (0.0, task.up)
    )
    assert one == pytest.approx(down / both)
    assert 0.25 < one < 0.5
    assert two == pytest.approx(2 * one)
