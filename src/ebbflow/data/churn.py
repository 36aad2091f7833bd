"""Random joins and leaves: Poisson arrivals, exponential stays, returns after a time away.

At time 0 some devices are present and others are away; new ones arrive as a Poisson process. Stays
and times away are exponential, and whenever a device leaves, it will return with a fixed
probability. Arrivals and every device's life have their own random generators, so that no device's
life depends on another's, and following the process for longer does not change its beginning.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazySequence
from ebbflow.core.rng import Generators, Name, generator
from ebbflow.data.schedule import Roster, check_count, check_positive
from ebbflow.data.traces.cutting import Events
from ebbflow.data.traces.trace import Cut, expected_length, first_sessions

EVENT_LIMIT = 200_000
"""The joins and leaves that a random roster draws before it gives up, beside those it expects."""
MOST_EVENTS = 1_000_000_000
"""The most joins and leaves that a random roster may be expected to need: half an hour's work."""
BLOCK = 500_000
"""Joins and leaves are drawn in blocks of about this many."""
CHUNK = 1024
"""Arrivals that are drawn at once."""


class Churn(NamedTuple):
    """A process of joins and leaves.

    Attributes:
        arrivals: The mean number of new devices per unit of time.
        stay: The mean length of a stay.
        return_probability: The probability that a device that leaves comes back.
        away: The mean time until it does.
        initial: The number of devices present at time 0.
        initially_away: The number of others that are away at time 0 and will come back.
    """

    arrivals: float
    stay: float
    return_probability: float
    away: float
    initial: int = 0
    initially_away: int = 0


def balanced(present: int, stay: float, return_probability: float, away: float) -> Churn:
    """Return the process that keeps ``present`` devices present on average from the beginning.

    With return probability p a device stays 1 / (1 - p) times on average, so by Little's law
    ``arrivals`` new devices per unit of time keep arrivals * stay / (1 - p) present. In that steady
    state p * present * away / stay devices are away; if none were away at time 0, the first
    sessions would shrink until that many were. If p = 1, no new devices are needed: the same ones
    come and go for ever.

    >>> churn = balanced(20, stay=2.0, return_probability=0.5, away=2.0)
    >>> churn.arrivals, churn.initially_away
    (5.0, 10)
    >>> churn = balanced(20, stay=2.0, return_probability=1.0, away=6.0)
    >>> churn.arrivals, churn.initially_away
    (0.0, 60)
    """
    leaving = present / stay
    arrivals = leaving * (1 - return_probability)
    initially_away = round(leaving * return_probability * away)
    return Churn(arrivals, stay, return_probability, away, present, initially_away)


def random_roster(
    names: tuple[Name, ...],
    churn: Churn,
    *,
    sessions: int,
    cut: Cut,
    round_time: float | None = None,
) -> Roster:
    """Cut a random process into exactly ``sessions`` sessions.

    The process runs for as long as the sessions need. Asking for more sessions does not change the
    earlier ones. ``names`` are the random key, as for `ebbflow.core.rng.generator`.

    >>> cut = Cut("interval", interval=1.0, min_devices=2)
    >>> churn = Churn(arrivals=2.0, stay=3.0, return_probability=0.5, away=1.0)
    >>> short = random_roster((100, "schedule"), churn, sessions=3, cut=cut)
    >>> longer = random_roster((100, "schedule"), churn, sessions=6, cut=cut)
    >>> len(longer.sessions), longer.sessions[:3] == list(short.sessions)
    (6, True)
    """
    expected = sessions * _events_a_session(churn, cut)
    if expected > MOST_EVENTS:
        raise EbbflowError(
            f"The random schedule of {sessions} sessions has about {expected:.1e} joins and "
            f"leaves, more than {MOST_EVENTS:.0e}; lower `sessions` or `partition.devices`, "
            f"{cut.shortened}, or raise `schedule.stay` (now {churn.stay:g})."
        )
    limit = EVENT_LIMIT + 4 * math.ceil(expected)
    left = limit

    def limited() -> Iterator[Events]:
        nonlocal left
        for block in random_events(names, churn):
            yield Events(block.times[:left], block.devices[:left], block.joins[:left])
            left -= min(left, len(block.times))
            if left == 0:
                return

    presences, count = first_sessions(limited(), cut, sessions, round_time)
    roster = Roster(LazySequence(count, "d{}".format), presences)
    yielded = len(roster.sessions)
    if yielded == sessions:
        return roster
    told = f"The random schedule yields {yielded} of {sessions} sessions before it"
    if left == 0:
        raise EbbflowError(
            f"{told} reaches {limit:,} joins and leaves, four times what it should need; lower "
            f"`schedule.min_devices` (now {cut.min_devices}), {cut.shortened}, or raise "
            f"`schedule.arrivals` (now {churn.arrivals:g})."
        )
    raise EbbflowError(
        f"{told} dies out; raise `schedule.arrivals` (now {churn.arrivals:g}) or `schedule.stay` "
        f"(now {churn.stay:g}), or lower `sessions` or `schedule.min_devices` (now "
        f"{cut.min_devices})."
    )


def _events_a_session(churn: Churn, cut: Cut) -> float:
    """Return how many joins and leaves to expect in a session, roughly."""
    new = churn.arrivals * churn.stay / max(1e-3, 1 - churn.return_probability)
    present = max(churn.initial, new, 1.0)
    length = expected_length(cut, churn.stay, churn.return_probability, churn.away)
    return 2 * present * max(1.0, length / churn.stay)


def random_events(names: tuple[Name, ...], churn: Churn) -> Iterator[Events]:
    """Yield blocks of joins and leaves in order of time, until no device can join any more.

    Devices are numbered in the order of their first arrival. A block holds all events of a span of
    time: every device's life is followed to the end of the span, and then the events are sorted.
    That is much faster than finding out, after each event, which device's comes next.
    """
    _check(churn)
    later = heapq.merge(
        _returning(names, churn.away, churn.initially_away), _poisson(names, churn.arrivals)
    )
    first_joins = chain(repeat(0.0, churn.initial), later)
    coming = next(first_joins, None)
    lives = Generators(*names, "life")
    going_on: list[_Life] = []
    device, end, length = 0, 0.0, churn.stay
    while going_on or coming is not None:
        end += length
        block = _Block(lives, churn, end)
        going_on = [after for life in going_on if (after := block.follow(life)) is not None]
        while coming is not None and coming < end:
            if (after := block.follow(_Life(device, coming, joins=True, drawn=0))) is not None:
                going_on.append(after)
            device += 1
            coming = next(first_joins, None)
        yield block.events()
        if len(block) < BLOCK // 2:
            length *= 2


class _Life(NamedTuple):
    """A device's next event, and how many numbers have been drawn for its life until then."""

    device: int
    time: float
    joins: bool
    drawn: int


class _Block:
    """The joins and leaves of all devices before a point in time."""

    def __init__(self, lives: Generators, churn: Churn, end: float) -> None:
        self._lives, self._churn, self._end = lives, churn, end
        self._times = array("d")
        self._devices, self._firsts, self._counts = array("q"), array("b"), array("q")

    def __len__(self) -> int:
        return len(self._times)

    def follow(self, life: _Life) -> _Life | None:
        """Add a device's events, and return what is left of its life, if anything is."""
        device, time, joins, drawn = life
        before = len(self._times)
        stays, away, back = self._churn.stay, self._churn.away, self._churn.return_probability
        if time >= self._end:
            return life
        self._lives.become(device, drawn)
        exponential, random = self._lives.draw.standard_exponential, self._lives.draw.random
        after: _Life | None = None
        while True:
            self._times.append(time)
            if joins:
                time += stays * exponential()
            elif random() < back:
                time += away * exponential()
            else:
                break
            joins = not joins
            if time >= self._end:
                after = _Life(device, time, joins, self._lives.drawn())
                break
        self._devices.append(device)
        self._firsts.append(life.joins)
        self._counts.append(len(self._times) - before)
        return after

    def events(self) -> Events:
        """Return the events in order of time; those of one device stay in their order."""
        counts = np.array(self._counts, dtype=np.int64)
        devices = np.repeat(np.array(self._devices, dtype=np.int64), counts)
        # A device joins and leaves in turn, beginning with its first event.
        turn = np.arange(len(devices)) - np.repeat(np.cumsum(counts) - counts, counts)
        joins = (turn % 2 == 0) == np.repeat(np.array(self._firsts, dtype=bool), counts)
        times = np.array(self._times, dtype=np.float64)
        order = np.lexsort((devices, times))
        return Events(times[order], devices[order], joins[order])


def _returning(names: tuple[Name, ...], away: float, count: int) -> Iterator[float]:
    """Yield, in order, the times at which the devices that are away at time 0 join.

    The first of n exponential times of mean ``away`` is exponential of mean ``away`` / n.
    """
    draws = generator(*names, "initially-away").standard_exponential(count)
    yield from np.cumsum(draws * (away / np.arange(count, 0, -1))).tolist()


def _poisson(names: tuple[Name, ...], rate: float) -> Iterator[float]:
    """Yield the times at which new devices arrive."""
    arriving = generator(*names, "arrivals")
    time = 0.0
    while rate > 0:
        times = np.cumsum([time, *(arriving.standard_exponential(CHUNK) * (1 / rate))])[1:]
        yield from times.tolist()
        time = times[-1]


def _check(churn: Churn) -> None:
    if not (math.isfinite(churn.arrivals) and churn.arrivals >= 0):
        raise EbbflowError(
            f"`schedule.arrivals` is {churn.arrivals}; give a finite number that is at least 0."
        )
    check_positive("schedule.stay", churn.stay)
    if not 0.0 <= churn.return_probability <= 1.0:
        raise EbbflowError(
            f"`schedule.return_probability` is {churn.return_probability}, not a probability; give "
            "a number from 0 to 1."
        )
    check_positive("schedule.away", churn.away)
    check_count("initial", churn.initial, least=0)
    if churn.arrivals == 0 and churn.initial == 0:
        raise EbbflowError(
            "`schedule.arrivals` and `initial`, the devices present at time 0, are both 0, so no "
            "device ever comes; raise one of them."
        )
