"""Random joins and leaves: Poisson arrivals, exponential stays, returns after a time away.

Some devices may be present at time 0, others may be away for the moment, and new ones arrive as a
Poisson process. A stay and a time away are exponential; a device that leaves comes back with a
fixed probability, each time anew. Arrivals and every device's life have generators of their own, so
nobody else's coming or going changes a device's life, and a process that is followed for longer
starts just the same.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import chain, islice, repeat, takewhile
from typing import NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import Name, generator
from ebbflow.data.schedule import Roster, check_count, check_positive
from ebbflow.data.trace import Cut, TraceEvent, first_sessions

EVENT_LIMIT = 200_000
"""Joins and leaves that a random roster may draw before it gives up."""


class Balance(NamedTuple):
    """What keeps the mean number of present devices where it is at time 0.

    ``arrivals`` is the number of new devices per unit of time; ``away`` is how many others are away
    at time 0 and will come back.
    """

    arrivals: float
    away: int


def balanced(present: int, stay: float, return_probability: float, away: float) -> Balance:
    """Return the arrivals and the devices away that keep ``present`` devices present on average.

    With return probability p a device stays 1 / (1 - p) times on average, so by Little's law
    ``arrivals`` new devices per unit of time keep arrivals * stay / (1 - p) present. In that steady
    state p * present * away / stay devices are away; if nobody were away at time 0, the first
    sessions would shrink until that many were. If p = 1, no new devices are needed: the same ones
    come and go for ever.

    >>> balanced(20, stay=2.0, return_probability=0.5, away=2.0)
    Balance(arrivals=5.0, away=10)
    >>> balanced(20, stay=2.0, return_probability=1.0, away=6.0)
    Balance(arrivals=0.0, away=60)
    """
    leaving = present / stay
    return Balance(
        arrivals=leaving * (1 - return_probability),
        away=round(leaving * return_probability * away),
    )


def random_trace(
    names: tuple[Name, ...],
    *,
    arrivals: float,
    stay: float,
    return_probability: float,
    away: float,
    horizon: float,
    initial: int = 0,
) -> list[TraceEvent]:
    """Draw the joins and leaves up to ``horizon``; a longer horizon only adds to the end.

    Devices are called d0, d1, ... in the order of their first arrival.

    Args:
        names: the key of the randomness, as for ``ebbflow.core.rng.generator``.
        arrivals: the mean number of new devices per unit of time.
        stay: the mean length of a stay.
        return_probability: the probability that a device that leaves comes back.
        away: the mean time until it does.
        horizon: the time of the last possible event.
        initial: the number of devices present at time 0.
    """
    check_positive("horizon", horizon)
    events = _events(names, arrivals, stay, return_probability, away, initial)
    return list(takewhile(lambda event: event.time <= horizon, events))


def random_roster(
    names: tuple[Name, ...],
    *,
    sessions: int,
    arrivals: float,
    stay: float,
    return_probability: float,
    away: float,
    cut: Cut,
    initial: int = 0,
    initially_away: int = 0,
    round_time: float | None = None,
) -> Roster:
    """Cut the process of ``random_trace`` into exactly ``sessions`` sessions.

    The process runs for as long as the sessions need. Asking for more sessions leaves the
    earlier ones as they are. ``initially_away`` devices are away at time 0 and join after an
    exponential time of mean ``away``.

    >>> cut = Cut("interval", interval=1.0, min_devices=2)
    >>> churn = dict(arrivals=2.0, stay=3.0, return_probability=0.5, away=1.0)
    >>> short = random_roster((100, "schedule"), sessions=3, cut=cut, **churn)
    >>> longer = random_roster((100, "schedule"), sessions=6, cut=cut, **churn)
    >>> len(longer.sessions), longer.sessions[:3] == short.sessions
    (6, True)
    """
    events = _events(names, arrivals, stay, return_probability, away, initial, initially_away)
    roster = first_sessions(islice(events, EVENT_LIMIT), cut, sessions, round_time)
    found = len(roster.sessions)
    if found < sessions:
        raise EbbflowError(
            f"The random schedule yields {found} of {sessions} sessions before it dies out or "
            f"reaches {EVENT_LIMIT:,} joins and leaves; raise `schedule.arrivals` (now {arrivals}) "
            f"or `schedule.stay` (now {stay}), or lower `sessions` or `schedule.min_devices` "
            f"(now {cut.min_devices})."
        )
    return roster


def _events(
    names: tuple[Name, ...],
    arrivals: float,
    stay: float,
    return_probability: float,
    away: float,
    initial: int,
    initially_away: int = 0,
) -> Iterator[TraceEvent]:
    """Yield the process in the order of time; it ends only when no device can come any more."""
    _check(arrivals, stay, return_probability, away, initial)
    later = heapq.merge(_returning(names, away, initially_away), _poisson(names, arrivals))
    first_joins = chain(repeat(0.0, initial), later)
    newcomers = ((time, device, True) for device, time in enumerate(first_joins))
    lives: dict[int, np.random.Generator] = {}
    agenda = list(islice(newcomers, 1))  # the next newcomer, and everybody who is on the way
    while agenda:
        time, device, joins = heapq.heappop(agenda)
        yield TraceEvent(time, f"d{device}", joins)
        if device not in lives:
            lives[device] = generator(*names, "life", device)
            for newcomer in islice(newcomers, 1):
                heapq.heappush(agenda, newcomer)
        life = lives[device]
        if joins:
            heapq.heappush(agenda, (time + life.exponential(stay), device, False))
        elif life.random() < return_probability:
            heapq.heappush(agenda, (time + life.exponential(away), device, True))
        else:
            del lives[device]


def _returning(names: tuple[Name, ...], away: float, count: int) -> Iterator[float]:
    """Yield in order the times at which those who are away at time 0 join.

    The first of n exponential times of mean ``away`` is exponential of mean ``away`` / n.
    """
    draw = generator(*names, "initially-away")
    time = 0.0
    for waiting in range(count, 0, -1):
        time += draw.exponential(away / waiting)
        yield time


def _poisson(names: tuple[Name, ...], rate: float) -> Iterator[float]:
    """Yield the times at which new devices arrive."""
    arriving = generator(*names, "arrivals")
    time = 0.0
    while rate > 0:
        time += arriving.exponential(1 / rate)
        yield time


def _check(
    arrivals: float, stay: float, return_probability: float, away: float, initial: int
) -> None:
    if not (math.isfinite(arrivals) and arrivals >= 0):
        raise EbbflowError(
            f"`schedule.arrivals` is {arrivals}; give a finite number that is at least 0."
        )
    check_positive("schedule.stay", stay)
    if not 0.0 <= return_probability <= 1.0:
        raise EbbflowError(
            f"`schedule.return_probability` is {return_probability}, not a probability; give a "
            "number from 0 to 1."
        )
    check_positive("schedule.away", away)
    check_count("initial", initial, least=0)
    if arrivals == 0 and initial == 0:
        raise EbbflowError(
            "`schedule.arrivals` and `initial`, the devices present at time 0, are both 0, so no "
            "device ever comes; raise one of them."
        )
