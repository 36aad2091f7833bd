"""The simulator's sessions are those that a trigger makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice, pairwise
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.core.triggers import (
    Observed,
    Trigger,
    after_rounds,
    any_of,
    every,
    membership_changes,
    newcomers,
)
from ebbflow.data.churn import random_events
from ebbflow.data.traces import cutting
from ebbflow.data.traces.cutting import Events, Span, triggered, windows
from ebbflow.data.traces.trace import Cut, from_trace, numbered_events
from tests.data.traces import CHURN, random_trace, trace

Told = list[tuple[list[int], float, float]]
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.booleans()), min_size=1)


def told(spans: Iterable[Span]) -> Told:
    """Return sessions as plain values, to be compared to the last bit."""
    return [(span.devices.tolist(), span.start, span.duration) for span in spans]


def blocks_of(rows: list[tuple[int, int, bool]], cuts: set[int]) -> list[Events]:
    """Return events in blocks that end at these places, be it within an instant."""
    rows = sorted(rows, key=itemgetter(0))
    places = [0, *sorted(place for place in cuts if place < len(rows)), len(rows)]
    parts = (rows[first:last] for first, last in pairwise(places))
    return [
        Events(
            np.array([time / 2 for time, _, _ in part], float),
            np.array([device for _, device, _ in part], np.int64),
            np.array([joins for _, _, joins in part], bool),
        )
        for part in parts
    ]


def former_changes(blocks: Iterable[Events], fraction: float, least: int) -> Iterator[Span]:
    """Yield the sessions of the rule "change" as it was before there were triggers."""
    present: set[int] = set()
    changed: set[int] = set()
    members: frozenset[int] = frozenset()
    start: float | None = None
    time = 0.0

    def span() -> Span:
        assert start is not None
        return Span(np.array(sorted(members), dtype=np.int32), start, time - start)

    events = (
        row
        for block in blocks
        for row in zip(
            block.times.tolist(), block.devices.tolist(), block.joins.tolist(), strict=True
        )
    )
    for time, instant in groupby(events, key=itemgetter(0)):
        for _, device, joins in instant:
            (present.add if joins else present.discard)(device)
            (changed.discard if joins == (device in members) else changed.add)(device)
        if len(present) < least:
            continue
        if start is not None:
            if not changed or len(changed) < fraction * len(present) - 1e-6:
                continue
            yield span()
        members, start = frozenset(present), time
        changed.clear()
    if start is not None:
        yield span()


def untold(trigger: Trigger) -> Trigger:
    """Return a trigger of which nobody can tell what it goes by."""

    def own(observed: Observed) -> str | None:
        return trigger(observed)

    return own


@settings(deadline=None)
@given(ROWS, st.sets(st.integers(1, 30)), st.floats(0, 2), st.integers(1, 4), st.integers(1, 9))
def test_the_rule_change_cuts_as_it_did_before(
    rows: list[tuple[int, int, bool]], cuts: set[int], share: float, least: int, at_once: int
) -> None:
    blocks = blocks_of(rows, cuts)
    expected = told(former_changes(blocks, share, least))
    trigger = membership_changes(share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "FEWEST_AT_ONCE", at_once)
        assert told(triggered(blocks, trigger, least, None)) == expected
        assert told(triggered(blocks, untold(trigger), least, None)) == expected
        assert told(triggered(blocks, untold(trigger), least, 0.3)) == expected


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.floats(0, 1.2), st.integers(1, 4))
def test_random_devices_are_cut_by_change_as_before(seed: int, share: float, least: int) -> None:
    former, now = (
        told(islice(cut, 12))
        for cut in (
            former_changes(random_events((seed,), CHURN), share, least),
            triggered(random_events((seed,), CHURN), membership_changes(share), least, None),
        )
    )
    assert now == former


@settings(deadline=None)
@given(
    ROWS,
    st.sets(st.integers(1, 30)),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 3),
    st.integers(1, 9),
)
def test_many_instants_at_once_are_each_of_them(
    rows: list[tuple[int, int, bool]],
    cuts: set[int],
    new: float,
    changed: float,
    least: int,
    at_once: int,
) -> None:
    blocks = blocks_of(rows, cuts)
    for trigger in (newcomers(new), any_of(newcomers(new), any_of(membership_changes(changed)))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cutting, "FEWEST_AT_ONCE", at_once)
            quick = told(triggered(blocks, trigger, least, None))
        assert quick == told(triggered(blocks, untold(trigger), least, None))


def test_newcomers_are_those_who_were_in_no_session() -> None:
    # Before the third session c and e are new, though c has been there, and a is not.
    events = trace("0+a 0+b 1+c 2-c 3-a 4+d 5+e 6+a 7+c 8-b")
    roster = from_trace(events, Cut("newcomers", newcomers=0.5))
    words = ["".join(roster.names[device] for device in s.devices) for s in roster.sessions]
    assert words == ["ab", "bd", "acde"]


@settings(deadline=None)
@given(ROWS, st.integers(1, 8), st.integers(1, 4))
def test_every_is_the_rule_interval_where_somebody_is_always_there(
    rows: list[tuple[int, int, bool]], length: int, rounds: int
) -> None:
    rows = [(0, 9, True), *rows]
    blocks = blocks_of(rows, set())
    by_time = told(windows(blocks, length / 4, 1))
    # A round's end is when a session may end: here some rounds make an interval.
    trigger = every(length / 4)
    asked = told(triggered(blocks, trigger, 1, length / 4 / 2 ** (rounds - 1)))
    assert [(devices, start) for devices, start, _ in asked] == [
        (devices, start) for devices, start, _ in by_time
    ]
    assert [duration for _, _, duration in asked[:-1]] == [length / 4] * (len(asked) - 1)


def test_a_trigger_is_told_what_a_server_would_see() -> None:
    heard: list[Observed] = []

    def listen(observed: Observed) -> str | None:
        heard.append(observed)
        return "enough" if observed.now in (2.0, 3.5) else None

    _, block = numbered_events(trace("0+a 1+b 2+c 2-a 4-b"))
    spans = told(triggered([block], listen, 1, 0.5))
    assert spans == [([0], 0.0, 2.0), ([1, 2], 2.0, 1.5), ([1, 2], 3.5, 0.5)]
    times = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]  # after each round, and with the events
    assert [each.now for each in heard] == times
    assert [each.session for each in heard] == [1, 1, 1, 1, 2, 2, 2, 3]
    assert [each.rounds for each in heard] == [1, 2, 3, 4, 1, 2, 3, 1]
    assert [each.seconds for each in heard] == [0.5, 1.0, 1.5, 2.0, 0.5, 1.0, 1.5, 0.5]
    assert heard[1].members == {0}
    assert heard[1].present == {0, 1}
    assert [set(each.known) for each in heard] == [set()] * 4 + [{0}] * 3 + [{0, 1, 2}]
    assert heard[-1].present == {2}


def test_sessions_may_end_after_so_many_rounds() -> None:
    events = trace("0+a 1+b 7-a")
    cut = Cut("trigger", trigger=after_rounds(4))
    roster = from_trace(events, cut, round_time=0.5)
    assert [(session.devices, session.rounds) for session in roster.sessions] == [
        ((0,), 4),
        ((0, 1), 4),
        ((0, 1), 4),
        ((0, 1), 2),
    ]
    with pytest.raises(EbbflowError, match=r"after_rounds\(4\)\) counts rounds.*round_time`"):
        from_trace(events, Cut("trigger", trigger=any_of(every(3), after_rounds(4))))
    with pytest.raises(EbbflowError, match=r"rule 'trigger' of a cut has no trigger; give"):
        from_trace(events, Cut("trigger"))
    with pytest.raises(EbbflowError, match=r"yields 4 sessions where 9 .*choose another trigger"):
        from_trace(events, cut, round_time=0.5, sessions=9)
    with pytest.raises(EbbflowError, match=r"more than 1,000,000 rounds"):
        from_trace(events, Cut("trigger", trigger=every(2)), round_time=5e-324)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_random_schedule_is_cut_by_newcomers(share: float) -> None:
    events = random_trace((1,), CHURN, horizon=100.0)
    roster = from_trace(events, Cut("newcomers", newcomers=share, min_devices=2))
    seen: set[int] = set()
    assert len(roster.sessions) > 3
    for place, session in enumerate(roster.sessions):
        new = len(set(session.devices) - seen)
        assert new >= max(1, share * len(session.devices) - 1e-5) or place == 0
        seen |= set(session.devices)
