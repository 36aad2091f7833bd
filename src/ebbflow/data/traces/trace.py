"""Sessions from a trace of joins and leaves, and the rules that cut it.

A trace says when each device joins and leaves. A ``Cut`` says where one session ends and the next
begins, and ``from_trace`` turns the two into a roster. Membership is fixed within a session: joins
and leaves during a session take effect at the start of the next.

``ebbflow.data.traces.trace_files`` reads traces; ``ebbflow.data.churn`` draws them at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazySequence
from ebbflow.data.schedule import SLACK, Presence, Roster, check_count, check_positive

SESSION_LIMIT = 1_000_000
"""The most sessions that a trace may yield; more suggest a mistake in the unit of time."""

ROUND_LIMIT = 1_000_000
"""The most rounds that a session may have, as for `rounds`."""


class TraceEvent(NamedTuple):
    """A device joins, or else leaves, at ``time``."""

    time: float
    device: str
    joins: bool


class Events(NamedTuple):
    """Joins and leaves in order of time: at ``times[i]`` device ``devices[i]`` joins or leaves."""

    times: NDArray[np.float64]
    devices: NDArray[np.int64]
    joins: NDArray[np.bool_]


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
    names, block = numbered_events(events)
    presences, count = first_sessions([block], cut, sessions, round_time)
    roster = Roster(tuple(names[:count]), presences)
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


def numbered_events(events: Iterable[TraceEvent]) -> tuple[list[str], Events]:
    """Return the names of devices in order of their first appearance, and the events by number."""
    numbers: dict[str, int] = {}
    in_order = sorted(events, key=attrgetter("time"))
    devices = [numbers.setdefault(event.device, len(numbers)) for event in in_order]
    times, joins = [event.time for event in in_order], [event.joins for event in in_order]
    block = Events(np.array(times, float), np.array(devices, np.int64), np.array(joins, bool))
    return list(numbers), block


def first_sessions(
    blocks: Iterable[Events], cut: Cut, sessions: int | None, round_time: float | None
) -> tuple[Sequence[Presence], int]:
    """Return the first ``sessions`` sessions of blocks of events, or as many as there are.

    Each block begins where the one before it ended. Blocks are consumed only as needed, so that an
    endless process can be cut, too. The second result is one more than the number of the last
    device in any of the sessions. Each session is kept as an array: ten thousand devices take 40 kB
    then, and ten times that as a tuple.
    """
    if sessions is not None:
        check_count("sessions", sessions)
    if round_time is not None:
        check_positive("schedule.round_time", round_time)
    spans = session_spans(blocks, cut, sessions)
    if spans:
        _rounds(max(span.duration for span in spans), round_time)  # raise now if there are too many

    def presence(place: int) -> Presence:
        span = spans[place]
        return Presence(tuple(span.devices.tolist()), _rounds(span.duration, round_time))

    last = max((int(span.devices[-1]) for span in spans), default=-1)
    return LazySequence(len(spans), presence), last + 1


def session_spans(blocks: Iterable[Events], cut: Cut, sessions: int | None) -> tuple[Span, ...]:
    """Return the same sessions with their beginnings and lengths."""
    wanted = SESSION_LIMIT + 1 if sessions is None else sessions
    spans = tuple(islice(_spans(blocks, cut), wanted))
    if len(spans) > SESSION_LIMIT:
        raise EbbflowError(
            f"The trace yields more than {SESSION_LIMIT:,} sessions; set `sessions`, or "
            "check that `schedule.interval` is in the trace's unit of time."
        )
    return spans


def _rounds(duration: float, round_time: float | None) -> int | None:
    if round_time is None:
        return None
    rounds = duration / round_time + SLACK
    if rounds >= ROUND_LIMIT + 1:
        raise EbbflowError(
            f"A session of length {duration:g} has more than {ROUND_LIMIT:,} rounds of length "
            f"{round_time:g}; raise `schedule.round_time`, which is in the trace's unit of time."
        )
    return max(1, math.floor(rounds))


class Span(NamedTuple):
    """The devices of a session, in ascending order, when it starts, and how long it lasts."""

    devices: NDArray[np.int32]
    start: float
    duration: float


def _spans(blocks: Iterable[Events], cut: Cut) -> Iterator[Span]:
    """Check the settings that the rule needs, and apply it."""
    check_count("schedule.min_devices", cut.min_devices)
    if cut.rule == "interval":
        if cut.interval is None:
            raise EbbflowError(
                "`schedule.cut` is 'interval' but `schedule.interval` is missing; set it to the "
                "length of a session in the trace's unit of time."
            )
        check_positive("schedule.interval", cut.interval)
        return _windows(blocks, cut.interval, cut.min_devices)
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
        return _changes(blocks, cut.change, cut.min_devices)
    raise EbbflowError(f"`schedule.cut` is {cut.rule!r}; set it to 'interval' or 'change'.")


def _windows(blocks: Iterable[Events], length: float, least: int) -> Iterator[Span]:
    """Yield the sessions of the rule ``interval``."""
    present = np.zeros(0, dtype=bool)
    origin: float | None = None
    window = 0
    time = 0.0
    for times, devices, joins in blocks:
        if not len(times):
            continue
        if origin is None:
            origin = float(times[0])
        present = _with_room(present, int(devices.max()) + 1)
        done = 0
        while True:
            # Of several events of a device, the last assignment counts.
            bound = origin + (window + SLACK) * length
            end = done + int(np.searchsorted(times[done:], bound, side="right"))
            present[devices[done:end]] = joins[done:end]
            done = end
            if done == len(times):
                break
            time = float(times[done])
            # A window that starts before this instant has the devices from before it.
            members = _members(present)
            while origin + (window + SLACK) * length < time:
                if len(members) >= least:
                    yield Span(members, origin + window * length, length)
                    window += 1
                else:
                    # Every window until this instant has equally few devices: skip them all.
                    window = max(window + 1, math.ceil((time - origin) / length - SLACK))
        time = float(times[-1])
    members = _members(present)
    if (
        origin is not None
        and len(members) >= least
        and origin + window * length <= time + SLACK * length
    ):
        yield Span(members, origin + window * length, length)


def _with_room(present: NDArray[np.bool_], devices: int) -> NDArray[np.bool_]:
    """Return who is present with room for so many devices, and some to spare."""
    if devices <= len(present):
        return present
    return np.concatenate([present, np.zeros(2 * devices - len(present), dtype=bool)])


def _members(present: NDArray[np.bool_]) -> NDArray[np.int32]:
    return np.flatnonzero(present).astype(np.int32)


def _changes(blocks: Iterable[Events], fraction: float, least: int) -> Iterator[Span]:
    """Yield the sessions of the rule ``change``."""
    present: set[int] = set()
    changed: set[int] = set()  # those in just one of ``members`` and ``present``
    members: frozenset[int] = frozenset()
    start: float | None = None
    time = 0.0
    for time, instant in groupby(_one_by_one(blocks), key=itemgetter(0)):
        for _, device, joins in instant:
            (present.add if joins else present.discard)(device)
            (changed.discard if joins == (device in members) else changed.add)(device)
        if len(present) < least:
            continue
        if start is not None:
            if not changed or len(changed) < fraction * len(present) - SLACK:
                continue
            yield _sorted(members, start, time - start)
        members, start = frozenset(present), time
        changed.clear()
    if start is not None:
        yield _sorted(members, start, time - start)


def _one_by_one(blocks: Iterable[Events]) -> Iterator[tuple[float, int, bool]]:
    for times, devices, joins in blocks:
        yield from zip(times.tolist(), devices.tolist(), joins.tolist(), strict=True)


def _sorted(devices: Iterable[int], start: float, duration: float) -> Span:
    return Span(np.array(sorted(devices), dtype=np.int32), start, duration)
