"""Rosters follow the trace."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.data.schedule import Roster
from ebbflow.data.traces.trace import Cut, TraceEvent, from_trace
from tests.data.traces import CHURN, plain, random_trace, slow_sessions, trace


def members(roster: Roster) -> list[str]:
    """Return each session's devices as a word of their names, in the order of their numbers."""
    return ["".join(roster.names[device] for device in s.devices) for s in roster.sessions]


def test_windows_see_who_is_there_at_their_start() -> None:
    events = trace("10+a 10+b 12+c 13-a 14-c 15+d 20+e")
    roster = from_trace(events, Cut("interval", interval=2.0))
    # Windows at 10, 12, ..., 20; events at a window's start count, e starts the last one.
    assert members(roster) == ["ab", "abc", "b", "bd", "bd", "bde"]
    assert roster.names == ("a", "b", "c", "d", "e")
    assert {session.rounds for session in roster.sessions} == {None}


def test_windows_with_too_few_devices_are_skipped_however_many() -> None:
    events = trace("0+a 0+b 1-a 1e9+a 1000000001-b")
    roster = from_trace(events, Cut("interval", interval=1.0, min_devices=2))
    assert members(roster) == ["ab", "ab"]


@pytest.mark.parametrize("length", [0.1, 0.3, 0.57, 1.1])
def test_an_event_on_a_window_bound_belongs_to_the_window(length: float) -> None:
    # As decimals; in binary i * length can miss the bound on either side.
    events = [TraceEvent(0.0, "x", True)] + [
        TraceEvent(round(i * length, 2), f"d{i}", True) for i in range(1, 200)
    ]
    roster = from_trace(events, Cut("interval", interval=length))
    assert [len(session.devices) for session in roster.sessions] == list(range(1, 201))


def test_change_of_zero_starts_a_session_at_every_change_of_membership() -> None:
    events = trace("0+a 1+b 1+c 2-a 2+a 3-b 3+d 4-c")
    assert members(from_trace(events, Cut("change", change=0.0))) == ["a", "abc", "acd", "ad"]


def test_change_counts_against_the_start_of_the_session() -> None:
    events = trace("0+a 0+b 0+c 0+d 1-a 2+a 3+e 4+f 5-a")
    # Against abcd: one of 3 has changed, none (a is back), one of 5, two of 6, three of 5.
    for fraction, expected in [
        (0.61, ["abcd"]),
        (0.6, ["abcd", "bcdef"]),
        (0.334, ["abcd", "bcdef"]),
        (1 / 3, ["abcd", "bcd", "abcde", "bcdef"]),
    ]:
        assert members(from_trace(events, Cut("change", change=fraction))) == expected


def test_change_waits_until_enough_devices_are_here() -> None:
    events = trace("0+a 1+b 2-a 3-b 4+c 6+d 9-d")
    roster = from_trace(events, Cut("change", change=0.0, min_devices=2), round_time=1.0)
    assert members(roster) == ["ab", "cd"]
    # The first lasts from 1 to 6 and the last from 6 to the last event.
    assert [session.rounds for session in roster.sessions] == [5, 3]


def test_rounds_are_whole_round_times_and_at_least_one() -> None:
    events = trace("0+a 0.3+b 1+c 8+d")
    roster = from_trace(events, Cut("change", change=0.0), round_time=0.1)
    assert [session.rounds for session in roster.sessions] == [3, 7, 70, 1]
    roster = from_trace(events, Cut("change", change=0.0), round_time=5.0)
    assert [session.rounds for session in roster.sessions] == [1, 1, 1, 1]
    roster = from_trace(events, Cut("interval", interval=0.7), round_time=0.1, sessions=2)
    assert [session.rounds for session in roster.sessions] == [7, 7]


@pytest.mark.parametrize("round_time", [5e-324, 1e-9])
def test_more_rounds_than_anyone_means_are_refused(round_time: float) -> None:
    with pytest.raises(EbbflowError, match=r"more than 1,000,000 rounds .*schedule\.round_time"):
        from_trace(trace("0+a 8+d"), Cut("interval", interval=1.0), round_time=round_time)


def test_a_limit_of_sessions_keeps_the_first_ones_whole() -> None:
    events = trace("0+a 2+b 5+c 9+d")
    cut = Cut("change", change=0.0)
    everything = from_trace(events, cut, round_time=1.0)
    limited = from_trace(events, cut, round_time=1.0, sessions=2)
    assert list(limited.sessions) == everything.sessions[:2]
    assert limited.names == ("a", "b")


def test_the_order_of_events_given_does_not_matter() -> None:
    events = trace("0+a 1+b 3-a 5+c")
    cut = Cut("interval", interval=1.0)
    assert plain(from_trace(events[::-1], cut)) == plain(from_trace(events, cut))


@settings(deadline=None)
@given(
    st.integers(0, 10_000),
    st.one_of(
        st.builds(Cut, st.just("interval"), st.floats(0.05, 5), st.none(), st.integers(1, 4)),
        st.builds(Cut, st.just("change"), st.none(), st.floats(0, 2), st.integers(1, 4)),
    ),
)
def test_every_session_is_a_moment_of_the_trace(seed: int, cut: Cut) -> None:
    events = random_trace((seed,), CHURN, horizon=20.0)
    moments: set[frozenset[str]] = set()
    present: set[str] = set()
    for event in events:
        (present.add if event.joins else present.remove)(event.device)
        moments.add(frozenset(present))
    roster = from_trace(events, cut)
    assert len(set(roster.names)) == len(roster.names)
    for session in roster.sessions:
        assert list(session.devices) == sorted(set(session.devices))
        assert len(session.devices) >= cut.min_devices
        assert frozenset(roster.names[device] for device in session.devices) in moments
    if cut.rule == "change":
        for before, after in zip(roster.sessions, roster.sessions[1:], strict=False):
            changed = set(before.devices) ^ set(after.devices)
            assert changed
            assert cut.change is not None
            assert len(changed) >= cut.change * len(after.devices) - 1e-5


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from("abcde"), st.booleans()), min_size=1
    ).map(lambda rows: [TraceEvent(time / 2, device, joins) for time, device, joins in rows]),
    st.one_of(
        st.builds(Cut, st.just("interval"), st.floats(0.1, 5), st.none(), st.integers(1, 3)),
        st.builds(Cut, st.just("change"), st.none(), st.floats(0, 2), st.integers(1, 3)),
    ),
)
def test_the_cut_is_that_of_its_plain_twin(events: list[TraceEvent], cut: Cut) -> None:
    expected = slow_sessions(events, cut)
    if not expected:
        with pytest.raises(EbbflowError, match="yields 0 sessions"):
            from_trace(events, cut, round_time=0.25)
    else:
        assert list(from_trace(events, cut, round_time=0.25).sessions) == expected


def test_too_few_sessions_are_refused_with_their_number() -> None:
    events = trace("0+a 1+b")
    by_change, by_time = Cut("change", change=0.0), Cut("interval", interval=1.0)
    assert len(from_trace(events, by_change, sessions=2).sessions) == 2
    with pytest.raises(EbbflowError, match=r"yields 2 sessions where 3 .*`schedule.change`"):
        from_trace(events, by_change, sessions=3)
    with pytest.raises(EbbflowError, match=r"yields 2 sessions where 3 .*`schedule.interval`"):
        from_trace(events, by_time, sessions=3)
    with pytest.raises(EbbflowError, match=r"yields 0 sessions where at least one.*\(now 3\)"):
        from_trace(events, by_time._replace(min_devices=3))
    with pytest.raises(EbbflowError, match="yields 0 sessions"):
        from_trace([], by_change)


def test_more_sessions_than_anyone_means_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebbflow.data.traces.trace.SESSION_LIMIT", 10)
    cut = Cut("interval", interval=1.0)
    assert len(from_trace(trace("0+a 9-a 9+a"), cut).sessions) == 10
    with pytest.raises(EbbflowError, match=r"more than 10 sessions; set `sessions`"):
        from_trace(trace("0+a 1e9-a"), cut)


@pytest.mark.parametrize(
    ("cut", "asked", "sentence"),
    [
        (Cut("interval"), {}, "`schedule.interval` is missing; set it"),
        (Cut("interval", interval=0.0), {}, "`schedule.interval` is 0.0; give"),
        (Cut("interval", interval=math.inf), {}, "`schedule.interval` is inf"),
        (Cut("change"), {}, "`schedule.change` is missing; set it"),
        (Cut("change", change=-0.1), {}, "`schedule.change` is -0.1; give"),
        (Cut("change", change=math.nan), {}, "`schedule.change` is nan"),
        (Cut("newcomers"), {}, "`schedule.newcomers` is missing; set it"),
        (Cut("newcomers", newcomers=1.1), {}, "`schedule.newcomers` is 1.1; give a share"),
        (Cut("newcomers", newcomers=math.nan), {}, "`schedule.newcomers` is nan"),
        (Cut("change", change=0.0, min_devices=0), {}, "`schedule.min_devices` is 0; set"),
        (Cut("weekly"), {}, "`schedule.cut` is 'weekly'; set"),  # type: ignore[arg-type]  # wrong
        (Cut("change", change=0.0), {"sessions": 0}, "`sessions` is 0"),
        (Cut("change", change=0.0), {"round_time": 0.0}, "`schedule.round_time` is 0.0"),
    ],
)
def test_a_bad_cut_is_refused(cut: Cut, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        from_trace(trace("0+a 1+b"), cut, **asked)
