"""Sessions from a trace of joins and leaves, and the rules that cut it.

A trace says when each device joins and leaves. A ``Cut`` says where one session ends and the next
begins, and ``from_trace`` turns the two into a roster. Membership is fixed within a session: joins
and leaves during a session take effect at the start of the next.

``ebbflow.data.traces.trace_files`` reads traces; ``ebbflow.data.churn`` draws them at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazySequence
from ebbflow.core.triggers import Trigger, membership_changes, newcomers
from ebbflow.data.schedule import Presence, Roster, check_count, check_positive
from ebbflow.data.traces.cutting import Events, Span, rounds_within, triggered, windows

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

    ``newcomers``: as ``change``, but a new session starts as soon as at least the share
    ``newcomers`` of those present have never been in a session.

    ``trigger``: as ``change``, but a new session starts as soon as ``trigger`` says so. It is asked
    at every join and leave and, if rounds have a duration, after every round.
    """

    rule: Literal["interval", "change", "newcomers", "trigger"]
    interval: float | None = None
    change: float | None = None
    min_devices: int = 1
    newcomers: float | None = None
    trigger: Trigger | None = None

    @property
    def shortened(self) -> str:
        """What makes sessions shorter, as part of a sentence."""
        if self.rule == "interval":
            return "shorten `schedule.interval`"
        if self.rule == "trigger":
            return "choose another trigger"
        return f"lower `schedule.{self.rule}`"


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
            round_time)) rounds. Under ``interval`` a session lasts one window; under other rules
            it lasts until the next starts, and the last one until the last event, so that a session
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
        raise EbbflowError(
            f"The trace yields {yielded} session{'s' * (yielded != 1)} where {asked}; lower "
            f"`sessions` or `schedule.min_devices` (now {cut.min_devices}), {cut.shortened}, "
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
    spans = session_spans(blocks, cut, sessions, round_time)
    if spans:
        _rounds(max(span.duration for span in spans), round_time)  # raise now if there are too many

    def presence(place: int) -> Presence:
        span = spans[place]
        return Presence(tuple(span.devices.tolist()), _rounds(span.duration, round_time))

    last = max((int(span.devices[-1]) for span in spans), default=-1)
    return LazySequence(len(spans), presence), last + 1


def session_spans(
    blocks: Iterable[Events], cut: Cut, sessions: int | None, round_time: float | None = None
) -> tuple[Span, ...]:
    """Return the same sessions with their beginnings and lengths."""
    wanted = SESSION_LIMIT + 1 if sessions is None else sessions
    spans = tuple(islice(_spans(blocks, cut, round_time), wanted))
    if len(spans) > SESSION_LIMIT:
        raise EbbflowError(
            f"The trace yields more than {SESSION_LIMIT:,} sessions; set `sessions`, or "
            "check that `schedule.interval` is in the trace's unit of time."
        )
    return spans


def _rounds(duration: float, round_time: float | None) -> int | None:
    return None if round_time is None else max(1, rounds_within(duration, round_time))


def expected_length(cut: Cut, stay: float, back: float, away: float) -> float:
    """Return roughly how long a session of a random schedule lasts, by the means of its times.

    By ``change`` some share of the devices has changed after about a stay. By ``newcomers`` the
    devices from before must make room: one is gone for ever after 1 / (1 - back) stays and the
    times away in between. If all come back, new are only those who have not come yet.
    """
    if cut.rule == "interval" and cut.interval:
        return cut.interval
    if cut.rule != "newcomers" or cut.newcomers is None:
        return stay
    life = away if back >= 1 else (stay + back * away) / (1 - back)
    return -life * math.log1p(-min(cut.newcomers, 0.999))


def _spans(blocks: Iterable[Events], cut: Cut, round_time: float | None) -> Iterator[Span]:
    """Check the settings that the rule needs, and apply it."""
    check_count("schedule.min_devices", cut.min_devices)
    if cut.rule == "interval":
        if cut.interval is None:
            raise EbbflowError(
                "`schedule.cut` is 'interval' but `schedule.interval` is missing; set it to the "
                "length of a session in the trace's unit of time."
            )
        check_positive("schedule.interval", cut.interval)
        return windows(blocks, cut.interval, cut.min_devices)
    return triggered(blocks, _trigger(cut), cut.min_devices, round_time)


def _trigger(cut: Cut) -> Trigger:
    """Return the trigger that a rule stands for."""
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
        return membership_changes(cut.change)
    if cut.rule == "newcomers":
        if cut.newcomers is None:
            raise EbbflowError(
                "`schedule.cut` is 'newcomers' but `schedule.newcomers` is missing; set it to the "
                "fraction of new devices that starts a session."
            )
        if not 0 <= cut.newcomers <= 1:
            raise EbbflowError(
                f"`schedule.newcomers` is {cut.newcomers}; give a share from 0 to 1."
            )
        return newcomers(cut.newcomers)
    if cut.rule != "trigger":
        raise EbbflowError(
            f"`schedule.cut` is {cut.rule!r}; set it to 'interval', 'change' or 'newcomers'."
        )
    if cut.trigger is None:
        raise EbbflowError(
            "The rule 'trigger' of a cut has no trigger; give it one, such as after_rounds(20)."
        )
    return cut.trigger
