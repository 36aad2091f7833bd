"""Where one session ends and the next begins, in blocks of joins and leaves.

``windows`` cuts at equal intervals; ``triggered`` asks a trigger, as a real federation does. A
trigger that goes by numbers of devices alone is asked about many instants at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.triggers import (
    SLACK,
    CountRule,
    Counts,
    Flags,
    Observed,
    Trigger,
    count_rule,
    counts_rounds,
    describe,
)

ROUND_LIMIT = 1_000_000
"""The most rounds that a session may have, as for `rounds`."""
FEWEST_AT_ONCE = 64
"""Joins and leaves that are looked at together, at least."""


class Events(NamedTuple):
    """Joins and leaves in order of time: at ``times[i]`` device ``devices[i]`` joins or leaves."""

    times: NDArray[np.float64]
    devices: NDArray[np.int64]
    joins: Flags

    def part(self, first: int, end: int) -> Events:
        """Return some of them."""
        return Events(self.times[first:end], self.devices[first:end], self.joins[first:end])


class Span(NamedTuple):
    """The devices of a session, in ascending order, when it starts, and how long it lasts."""

    devices: NDArray[np.int32]
    start: float
    duration: float


def windows(blocks: Iterable[Events], length: float, least: int) -> Iterator[Span]:
    """Yield the windows of this length, except for those that start with fewer than ``least``."""
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
            members = _numbers(present)
            while origin + (window + SLACK) * length < time:
                if len(members) >= least:
                    yield Span(members, origin + window * length, length)
                    window += 1
                else:
                    # Every window until this instant has equally few devices: skip them all.
                    window = max(window + 1, math.ceil((time - origin) / length - SLACK))
        time = float(times[-1])
    members = _numbers(present)
    if (
        origin is not None
        and len(members) >= least
        and origin + window * length <= time + SLACK * length
    ):
        yield Span(members, origin + window * length, length)


def triggered(
    blocks: Iterable[Events], trigger: Trigger, least: int, round_time: float | None
) -> Iterator[Span]:
    """Yield the sessions that a trigger makes.

    The first session starts as soon as ``least`` devices are present, and the last one ends with
    the last event. The trigger is asked after the events of each instant and, if a round has a
    duration, after each round; but not while fewer than ``least`` are present.
    """
    rule = count_rule(trigger)
    if rule is not None:  # between two events nothing that it goes by can change
        return _counted(blocks, rule, least)
    if round_time is None and counts_rounds(trigger):
        raise EbbflowError(
            f"The trigger {describe(trigger)} counts rounds, which have no duration here; set "
            "`schedule.round_time`."
        )
    return _asked(blocks, trigger, least, round_time)


def rounds_within(duration: float, round_time: float) -> int:
    """Return how many whole rounds a duration has."""
    rounds = duration / round_time + SLACK
    if rounds >= ROUND_LIMIT + 1:
        raise EbbflowError(
            f"A session of length {duration:g} has more than {ROUND_LIMIT:,} rounds of length "
            f"{round_time:g}; raise `schedule.round_time`, which is in the trace's unit of time."
        )
    return math.floor(rounds)


def _asked(
    blocks: Iterable[Events], trigger: Trigger, least: int, round_time: float | None
) -> Iterator[Span]:
    """Yield the sessions of any trigger: it is asked again and again."""
    going = _GoingOn(trigger, least)
    time = 0.0
    for time, instant in groupby(_one_by_one(blocks), key=itemgetter(0)):
        if round_time is not None:
            yield from _after_rounds(going, round_time, time)
        for _, device, joins in instant:
            (going.present.add if joins else going.present.discard)(device)
        if round_time is not None and going.session:
            going.rounds = rounds_within(time - going.start, round_time)
        if (over := going.ended(time)) is not None:
            yield over
    if going.session:
        yield going.span(time)


def _after_rounds(going: _GoingOn, round_time: float, until: float) -> Iterator[Span]:
    """Yield the sessions that end with a round before some events."""
    while going.session:
        end = going.start + (going.rounds + 1) * round_time
        if end >= until - SLACK * round_time:  # a round that ends with the events knows of them
            return
        going.rounds += 1
        rounds_within(going.rounds * round_time, round_time)  # raise if there are too many
        if (over := going.ended(end)) is not None:
            yield over


class _GoingOn:
    """The session that goes on, and who is present."""

    def __init__(self, trigger: Trigger, least: int) -> None:
        self._trigger, self._least = trigger, least
        self.present: set[int] = set()
        self.session, self.rounds, self.start = 0, 0, 0.0
        self._members: frozenset[int] = frozenset()
        self._known: frozenset[int] = frozenset()

    def ended(self, now: float) -> Span | None:
        """Begin a new session if it is time, and return the one that ends by it, if one does."""
        if len(self.present) < self._least:
            return None
        here, over = frozenset(self.present), None
        if self.session:
            seen = (self.session, self.rounds, self._members, here, self._known)
            if self._trigger(Observed(*seen, now - self.start, now)) is None:
                return None
            over = self.span(now)
        self._known |= self._members
        self._members, self.start, self.rounds = here, now, 0
        self.session += 1
        return over

    def span(self, end: float) -> Span:
        """Return the session as it is if it ends now."""
        devices = np.array(sorted(self._members), dtype=np.int32)
        return Span(devices, self.start, end - self.start)


def _one_by_one(blocks: Iterable[Events]) -> Iterator[tuple[float, int, bool]]:
    for times, devices, joins in blocks:
        yield from zip(times.tolist(), devices.tolist(), joins.tolist(), strict=True)


def _counted(blocks: Iterable[Events], rule: CountRule, least: int) -> Iterator[Span]:
    """Yield the sessions of a rule about numbers of devices, which sees many instants at once."""
    crowd = _Crowd()
    start: float | None = None
    time = 0.0
    at_once, since = FEWEST_AT_ONCE, 0
    for block in _whole_instants(blocks):
        crowd.make_room(int(block.devices.max()) + 1)
        done = 0
        while done < len(block.times):
            last = block.times[min(done + at_once, len(block.times)) - 1]
            some = block.part(done, int(np.searchsorted(block.times, last, side="right")))
            ends = np.append(np.flatnonzero(np.diff(some.times)), len(some.times) - 1)
            counts = crowd.counts(some, ends)
            begins = counts[0] >= least
            if start is not None:
                begins &= rule(Counts(*counts))
            new = bool(begins.any())
            place = int(begins.argmax()) if new else len(ends) - 1
            until = int(ends[place]) + 1
            crowd.follow(some.part(0, until), Counts(*(int(each[place]) for each in counts)))
            done, since, time = done + until, since + until, float(some.times[until - 1])
            if new:
                if start is not None:
                    yield Span(crowd.members, start, time - start)
                    # The next session may well take as many events, or a few more.
                    at_once = max(FEWEST_AT_ONCE, since + since // 4)
                crowd.begin()
                start, since = time, 0
    if start is not None:
        yield Span(crowd.members, start, time - start)


def _whole_instants(blocks: Iterable[Events]) -> Iterator[Events]:
    """Yield the same events in blocks that do not end in the middle of an instant."""
    held = Events(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, bool))
    for block in blocks:
        if not len(block.times):
            continue
        held = Events(*(np.concatenate(pair) for pair in zip(held, block, strict=True)))
        last = int(np.searchsorted(held.times, held.times[-1], side="left"))
        if last:
            yield held.part(0, last)
        held = held.part(last, len(held.times))
    if len(held.times):
        yield held


class _Crowd:
    """Who is present, who is a member of the session, and who has been one of any."""

    def __init__(self) -> None:
        self.members = np.zeros(0, dtype=np.int32)
        self._here, self._member, self._seen = (np.zeros(0, dtype=bool) for _ in range(3))
        self._last = Counts(0, 0, 0)

    def make_room(self, devices: int) -> None:
        """Be ready for so many devices."""
        self._here = _with_room(self._here, devices)
        self._member = _with_room(self._member, devices)
        self._seen = _with_room(self._seen, devices)

    def counts(self, events: Events, places: NDArray[np.intp]) -> list[NDArray[np.int64]]:
        """Return the `Counts` after the events at these places; they have not happened yet."""
        _, devices, joins = events
        order = np.argsort(devices, kind="stable")
        again = np.flatnonzero(np.diff(devices[order]) == 0)
        before = self._here[devices]
        before[order[again + 1]] = joins[order[again]]  # what the device's last event made of it
        step = joins.astype(np.int64) - before
        changed = np.where(self._member[devices], -step, step)
        newcomers = np.where(self._seen[devices], 0, step)
        steps = (step, changed, newcomers)
        together = zip(self._last, steps, strict=True)
        return [np.add(now, np.cumsum(step)[places]) for now, step in together]

    def follow(self, events: Events, counts: Counts) -> None:
        """Let events happen, after which these are the counts."""
        self._here[events.devices] = events.joins  # of several events of a device the last counts
        self._last = counts

    def begin(self) -> None:
        """Let those present be the members of a new session."""
        self._member[self.members] = False
        self.members = _numbers(self._here)
        self._member[self.members] = True
        self._seen[self.members] = True
        self._last = Counts(len(self.members), 0, 0)


def _with_room(flags: Flags, devices: int) -> Flags:
    """Return flags with room for so many devices, and some to spare."""
    if devices <= len(flags):
        return flags
    return np.concatenate([flags, np.zeros(2 * devices - len(flags), dtype=bool)])


def _numbers(flags: Flags) -> NDArray[np.int32]:
    return np.flatnonzero(flags).astype(np.int32)
