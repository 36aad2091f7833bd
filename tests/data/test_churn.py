"""The random trace follows its laws, and the random roster is its cut."""

from __future__ import annotations

import math
from collections import Counter
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.data.churn import Churn, balanced, random_roster
from ebbflow.data.traces.trace import Cut, TraceEvent, from_trace
from tests.data.traces import CHURN, plain, random_trace, slow_events, trace

# Random traces.


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 20), st.floats(0.5, 20))
def test_a_longer_horizon_only_adds_to_the_end(seed: int, one: float, two: float) -> None:
    short, longer = (random_trace((seed, "schedule"), CHURN, horizon=h) for h in sorted((one, two)))
    assert longer[: len(short)] == short
    assert all(event.time > min(one, two) for event in longer[len(short) :])


def test_a_random_trace_is_in_order_and_consistent() -> None:
    events = random_trace((1,), CHURN, horizon=50.0)
    assert [e.time for e in events] == sorted(e.time for e in events)
    assert events[:4] == trace("0+d0 0+d1 0+d2 0+d3")
    present: set[str] = set()
    for event in events:
        assert event.joins != (event.device in present)
        (present.add if event.joins else present.remove)(event.device)
    # Names follow the order of first arrival.
    firsts = list(dict.fromkeys(event.device for event in events))
    assert firsts == [f"d{number}" for number in range(len(firsts))]
    assert events == random_trace((1,), CHURN, horizon=50.0)
    assert events != random_trace((2,), CHURN, horizon=50.0)


@pytest.mark.parametrize("block", [1, 50, 500_000])
@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    churn=st.builds(
        Churn,
        arrivals=st.sampled_from([0.0, 0.01, 3.0]),
        stay=st.floats(0.1, 5),
        return_probability=st.sampled_from([0.0, 0.5, 1.0]),
        away=st.floats(0.1, 5),
        initial=st.integers(1, 20),
        initially_away=st.integers(0, 20),
    ),
)
def test_blocks_of_events_are_those_drawn_one_by_one_to_the_bit(
    block: int, seed: int, churn: Churn
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ebbflow.data.churn.BLOCK", block)
        events = random_trace((seed, "schedule"), churn, horizon=40.0)
    slowly = slow_events((seed, "schedule"), churn)
    assert events == list(takewhile(lambda event: event.time <= 40.0, slowly))


def lives(events: list[TraceEvent]) -> dict[str, list[float]]:
    """Return each device's times, counted from its first join."""
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.device, []).append(event.time)
    return {device: [t - ts[0] for t in ts] for device, ts in times.items()}


def test_the_rate_of_arrivals_leaves_the_lives_of_devices_alone() -> None:
    slow = lives(random_trace((5,), CHURN, horizon=400.0))
    fast = lives(random_trace((5,), CHURN._replace(arrivals=4.0), horizon=400.0))
    for number in range(50):
        device = f"d{number}"
        assert slow[device] == pytest.approx(fast[device])


def test_arrivals_are_poisson_and_the_number_present_obeys_littles_law() -> None:
    # New devices: Poisson(arrivals * horizon). In the steady state the number present is
    # Poisson too, with mean arrivals * stay / (1 - p): each device stays 1 / (1 - p) times.
    arrivals, stay, back, horizon, runs = 4.0, 2.0, 0.5, 60.0, 200
    new, present = [], []
    for seed in range(runs):
        events = random_trace((seed,), Churn(arrivals, stay, back, 3.0), horizon=horizon)
        new.append(len({event.device for event in events}))
        present.append(sum(1 if event.joins else -1 for event in events))
    for counts, mean in [(new, arrivals * horizon), (present, arrivals * stay / (1 - back))]:
        assert np.mean(counts) == pytest.approx(mean, abs=3 * math.sqrt(mean / runs))
        # The variance of a Poisson count is its mean; 3 sigma of its estimate are about 30 %.
        assert np.var(counts) == pytest.approx(mean, rel=0.31)


def test_stays_and_times_away_have_their_means() -> None:
    events = random_trace((9,), Churn(0.0, 2.0, 1.0, 5.0, initial=100), horizon=700.0)
    stays, aways = [], []
    for times in lives(events).values():
        gaps = np.diff(times)
        stays += gaps[0::2].tolist()
        aways += gaps[1::2].tolist()
    for lengths, mean in [(stays, 2.0), (aways, 5.0)]:
        assert np.mean(lengths) == pytest.approx(mean, abs=4 * mean / math.sqrt(len(lengths)))


def test_without_return_every_device_comes_and_goes_once() -> None:
    events = random_trace((0,), CHURN._replace(return_probability=0.0), horizon=100.0)
    assert max(Counter(event.device for event in events).values()) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arrivals", -1.0),
        ("arrivals", math.nan),
        ("stay", 0.0),
        ("stay", math.inf),
        ("return_probability", -0.1),
        ("return_probability", 1.1),
        ("return_probability", math.nan),
        ("away", 0.0),
        ("initial", -1),
    ],
)
def test_bad_settings_of_the_random_trace_are_refused(key: str, value: Any) -> None:
    name = key if key == "initial" else f"schedule.{key}"
    with pytest.raises(EbbflowError, match=rf"`{name}` is {value}\b.*(give|set)"):
        random_trace((0,), CHURN._replace(**{key: value}), horizon=5.0)


def test_a_process_without_any_device_is_refused() -> None:
    with pytest.raises(EbbflowError, match=r"`schedule.arrivals` and `initial`.* raise"):
        random_trace((0,), CHURN._replace(arrivals=0.0, initial=0), horizon=5.0)


# Random rosters.


@pytest.mark.parametrize(
    "cut",
    [
        Cut("interval", interval=0.7, min_devices=3),
        Cut("change", change=0.4, min_devices=3),
        Cut("newcomers", newcomers=0.4, min_devices=3),
    ],
    ids=["interval", "change", "newcomers"],
)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), fewer=st.integers(1, 8), more=st.integers(0, 8))
def test_more_sessions_leave_the_earlier_ones_alone(
    cut: Cut, seed: int, fewer: int, more: int
) -> None:
    short, longer = (
        random_roster((seed,), CHURN, sessions=sessions, cut=cut, round_time=0.1)
        for sessions in (fewer, fewer + more)
    )
    assert len(longer.sessions) == fewer + more
    assert longer.sessions[:fewer] == list(short.sessions)
    assert longer.names[: len(short.names)] == list(short.names)


@pytest.mark.parametrize("rule", ["interval", "change", "newcomers"])
def test_a_random_roster_is_the_cut_of_the_random_trace(rule: Any) -> None:
    cut = Cut(rule, interval=1.0, change=0.3, newcomers=0.3)
    roster = random_roster((3,), CHURN, sessions=8, cut=cut, round_time=0.25)
    events = random_trace((3,), CHURN, horizon=100.0)
    assert plain(from_trace(events, cut, sessions=8, round_time=0.25)) == plain(roster)


def test_a_process_that_dies_out_or_never_suffices_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = Cut("change", change=0.0)
    dying = CHURN._replace(arrivals=0.0, return_probability=0.0)
    # Four devices leave one by one; with none there is no session.
    assert len(random_roster((0,), dying, sessions=4, cut=cut).sessions) == 4
    with pytest.raises(EbbflowError, match=r"yields 4 of 5 sessions.*raise `schedule.arrivals`"):
        random_roster((0,), dying, sessions=5, cut=cut)
    monkeypatch.setattr("ebbflow.data.churn.EVENT_LIMIT", 2000)
    with pytest.raises(EbbflowError, match=r"yields 0 of 1 .*2,\d+ .*min_devices` \(now 10000\)"):
        random_roster((0,), CHURN, sessions=1, cut=cut._replace(min_devices=10_000))


def test_where_all_come_back_there_is_soon_nobody_new() -> None:
    churn = balanced(20, stay=2.0, return_probability=1.0, away=6.0)
    cut = Cut("newcomers", newcomers=0.3)
    assert len(random_roster((0,), churn, sessions=3, cut=cut).sessions) == 3
    with pytest.raises(EbbflowError, match=r"of 30 sessions .*lower `schedule.newcomers`, or"):
        random_roster((0,), churn, sessions=30, cut=cut)


def test_long_sessions_of_many_devices_have_as_many_events_as_they_need() -> None:
    # Some 400,000 joins and leaves, far more than the allowance for rare sessions.
    churn = Churn(500.0, 2.0, 0.5, 2.0, initial=2000)
    roster = random_roster((0,), churn, sessions=4, cut=Cut("interval", interval=50.0))
    assert len(roster.sessions) == 4


def test_a_schedule_that_would_take_hours_to_draw_is_refused_at_once() -> None:
    with pytest.raises(EbbflowError, match=r"about 2.6e\+10 joins and leaves.*`schedule.stay`"):
        random_roster((0,), CHURN, sessions=10, cut=Cut("interval", interval=3.3e8))
