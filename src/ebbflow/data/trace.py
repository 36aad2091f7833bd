"""Sessions from a trace of joins and leaves, and the rules that cut it.

A trace says when each device joins and leaves. A ``Cut`` says where one session ends and the next
begins, and ``from_trace`` turns the two into a roster. Membership is fixed within a session: joins
and leaves during a session take effect at the start of the next.

``ebbflow.data.trace_files`` reads traces; ``ebbflow.data.churn`` draws them at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter
from typing import Literal, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.data.schedule import SLACK, Presence, Roster, check_count, check_positive

SESSION_LIMIT = 1_000_000
"""The most sessions that a trace may yield; more suggest a mistake in the unit of time."""


class TraceEvent(NamedTuple):
    """A device joins, or else leaves, at ``time``."""

    time: float
    device: str
    joins: bool


class Cut(NamedTuple):
    """How a trace is cut into sessions.

    ``interval``: the sessions are the windows [t_0 + i D, t_0 + (i+1) D), where t_0 is the first
    event and D = ``interval``, that start no later than the last event; a window with fewer than
    ``min_devices`` present at its start is skipped.

    ``change``: the first session starts as soon as ``min_devices`` are present. A new one starts as
    soon as that many are present and the number of devices that have joined or left since the
    session's start is at least ``change`` times the number now present. A device that left and came
    back in between does not count; 0 starts a session whenever the membership changes.
    """

    rule: Literal["interval", "change"]
    interval: float | None = None
    change: float | None = None
    min_devices: int = 1


def from_trace(
    events: Iterable[TraceEvent],
    cut: Cut,
    *,
    sessions: int | None = None,
    round_time: float | None = None,
) -> Roster:
    """Cut a trace into sessions.

    Simultaneous events are applied together, and a session's devices are those present right after
    the events of its first instant. Devices are numbered in order of their first appearance in the
    trace, and ``names`` ends with the last device that a session needs.

    Args:
        events: joins and leaves; they are sorted by time.
        cut: the rule that starts a session.
        sessions: take this many, and fail if the trace yields fewer; None takes all.
        round_time: the duration of a round. A session then has max(1, floor(duration /
            round_time)) rounds. Under ``interval`` a session lasts one window; under ``change`` it
            lasts until the next starts, and the last one until the last event, so that a session
            starting with that event has a single round.

    >>> trace = [TraceEvent(0, "a", True), TraceEvent(1, "b", True), TraceEvent(5, "a", False)]
    >>> from_trace(trace, Cut("interval", interval=2.0)).sessions[1].devices
    (0, 1)
    >>> roster = from_trace(trace, Cut("change", change=0.0), round_time=0.5)
    >>> [(presence.devices, presence.rounds) for presence in roster.sessions]
    [((0,), 2), ((0, 1), 8), ((1,), 1)]
    """
    roster = first_sessions(sorted(events, key=attrgetter("time")), cut, sessions, round_time)
    yielded = len(roster.sessions)
    if yielded == 0 or (sessions is not None and yielded < sessions):
        asked = "at least one is needed" if sessions is None else f"{sessions} are asked for"
        by_time = cut.rule == "interval"
        shorten = "shorten `schedule.interval`" if by_time else "lower `schedule.change`"
        raise EbbflowError(
            f"The trace yields {yielded} session{'s' * (yielded != 1)} where {asked}; lower "
            f"`sessions` or `schedule.min_devices` (now {cut.min_devices}), {shorten}, "
            "or give a longer trace in `schedule.file`."
        )
    return roster


def first_sessions(
    events: Iterable[TraceEvent], cut: Cut, sessions: int | None, round_time: float | None
) -> Roster:
    """Return the first ``sessions`` sessions of events sorted by time, or as many as there are.

    Events are consumed only as needed, so that an endless process can be cut, too.
    """
    if sessions is not None:
        check_count("sessions", sessions)
    if round_time is not None:
        check_positive("schedule.round_time", round_time)
    numbers: dict[str, int] = {}
    spans = _spans(_numbered(events, numbers), cut)
    presences = tuple(
        Presence(tuple(sorted(numbers[name] for name in names)), _rounds(duration, round_time))
        for names, duration in islice(spans, SESSION_LIMIT + 1 if sessions is None else sessions)
    )
    if len(presences) > SESSION_LIMIT:
        raise EbbflowError(
            f"The trace yields more than {SESSION_LIMIT:,} sessions; set `sessions`, or "
            "check that `schedule.interval` is in the trace's unit of time."
        )
    last = max((presence.devices[-1] for presence in presences), default=-1)
    return Roster(tuple(islice(numbers, last + 1)), presences)


def _numbered(events: Iterable[TraceEvent], numbers: dict[str, int]) -> Iterator[TraceEvent]:
    """Yield the events unchanged, and number every device when it first appears."""
    for event in events:
        numbers.setdefault(event.device, len(numbers))
        yield event


def _rounds(duration: float, round_time: float | None) -> int | None:
    if round_time is None:
        return None
    return max(1, math.floor(duration / round_time + SLACK))


class _Span(NamedTuple):
    """The devices of a session and how long it lasts."""

    devices: frozenset[str]
    duration: float


def _spans(events: Iterable[TraceEvent], cut: Cut) -> Iterator[_Span]:
    """Check the settings that the rule needs, and apply it."""
    check_count("schedule.min_devices", cut.min_devices)
    if cut.rule == "interval":
        if cut.interval is None:
            raise EbbflowError(
                "`schedule.cut` is 'interval' but `schedule.interval` is missing; set it to the "
                "length of a session in the trace's unit of time."
            )
        check_positive("schedule.interval", cut.interval)
        return _windows(events, cut.interval, cut.min_devices)
    if cut.rule == "change":
        if cut.change is None:
            raise EbbflowError(
                "`schedule.cut` is 'change' but `schedule.change` is missing; set it to the "
                "fraction of changed devices that starts a session."
            )
        if not (math.isfinite(cut.change) and cut.change >= 0):
            raise EbbflowError(
                f"`schedule.change` is {cut.change}; give a finite number that is at least 0."
            )
        return _changes(events, cut.change, cut.min_devices)
    raise EbbflowError(f"`schedule.cut` is {cut.rule!r}; set it to 'interval' or 'change'.")


def _windows(events: Iterable[TraceEvent], length: float, least: int) -> Iterator[_Span]:
    """Yield the sessions of the rule ``interval``."""
    present: set[str] = set()
    origin: float | None = None
    window = 0
    time = 0.0
    for time, instant in groupby(events, key=attrgetter("time")):
        if origin is None:
            origin = time
        # A window that starts before this instant has the devices from before it.
        while origin + (window + SLACK) * length < time:
            if len(present) >= least:
                yield _Span(frozenset(present), length)
                window += 1
            else:
                # Every window until this instant has equally few devices: skip them all.
                window = max(window + 1, math.ceil((time - origin) / length - SLACK))
        _apply(instant, present)
    if (
        origin is not None
        and len(present) >= least
        and origin + window * length <= time + SLACK * length
    ):
        yield _Span(frozenset(present), length)


def _changes(events: Iterable[TraceEvent], fraction: float, least: int) -> Iterator[_Span]:
    """Yield the sessions of the rule ``change``."""
    present: set[str] = set()
    members: frozenset[str] | None = None
    start = time = 0.0
    for time, instant in groupby(events, key=attrgetter("time")):
        _apply(instant, present)
        if len(present) < least:
            continue
        if members is not None:
            changed = len(members ^ present)
            if changed == 0 or changed < fraction * len(present) - SLACK:
                continue
            yield _Span(members, time - start)
        members, start = frozenset(present), time
    if members is not None:
        yield _Span(members, time - start)


def _apply(instant: Iterable[TraceEvent], present: set[str]) -> None:
    for event in instant:
        (present.add if event.joins else present.discard)(event.device)
