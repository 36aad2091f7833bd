"""Random joins and leaves: Poisson arrivals, exponential stays, returns after a time away.

At time 0 some devices are present and others are away; new ones arrive as a Poisson process. Stays
and times away are exponential, and whenever a device leaves, it will return with a fixed
probability. Arrivals and every device's life have their own random generators, so that no device's
life depends on another's, and following the process for longer does not change its beginning.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import Name, generator
from ebbflow.data.schedule import Roster, check_count, check_positive
from ebbflow.data.trace import Cut, TraceEvent, first_sessions

EVENT_LIMIT = 200_000
"""The joins and leaves that a random roster draws before it gives up, beside those it expects."""


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
    >>> len(longer.sessions), longer.sessions[:3] == short.sessions
    (6, True)
    """
    limit = EVENT_LIMIT + 4 * sessions * _events_a_session(churn, cut)
    left = iter(range(limit))
    events = (event for event, _ in zip(random_events(names, churn), left, strict=False))
    roster = first_sessions(events, cut, sessions, round_time)
    yielded = len(roster.sessions)
    if yielded == sessions:
        return roster
    told = f"The random schedule yields {yielded} of {sessions} sessions before it"
    if next(left, None) is None:
        raise EbbflowError(
            f"{told} reaches {limit:,} joins and leaves, four times what it should need; lower "
            f"`schedule.min_devices` (now {cut.min_devices}) or `schedule.change`, or raise "
            f"`schedule.arrivals` (now {churn.arrivals:g})."
        )
    raise EbbflowError(
        f"{told} dies out; raise `schedule.arrivals` (now {churn.arrivals:g}) or `schedule.stay` "
        f"(now {churn.stay:g}), or lower `sessions` or `schedule.min_devices` (now "
        f"{cut.min_devices})."
    )


def _events_a_session(churn: Churn, cut: Cut) -> int:
    """Return how many joins and leaves to expect in a session, roughly."""
    new = churn.arrivals * churn.stay / max(1e-3, 1 - churn.return_probability)
    present = max(churn.initial, new, 1.0)
    # By the rule "change" a session lasts until some fraction of its devices has changed.
    length = cut.interval if cut.rule == "interval" and cut.interval else churn.stay
    return min(100_000, math.ceil(2 * present * max(1.0, length / churn.stay)))


def random_events(names: tuple[Name, ...], churn: Churn) -> Iterator[TraceEvent]:
    """Yield joins and leaves in order of time, until no device can join any more.

    Devices are called d0, d1, ... in the order of their first arrival.
    """
    _check(churn)
    later = heapq.merge(
        _returning(names, churn.away, churn.initially_away), _poisson(names, churn.arrivals)
    )
    first_joins = chain(repeat(0.0, churn.initial), later)
    newcomers = ((time, device, True) for device, time in enumerate(first_joins))
    lives: dict[int, np.random.Generator] = {}
    agenda = list(islice(newcomers, 1))  # the next newcomer, and each known device's next event
    while agenda:
        time, device, joins = heapq.heappop(agenda)
        yield TraceEvent(time, f"d{device}", joins)
        if device not in lives:
            lives[device] = generator(*names, "life", device)
            for newcomer in islice(newcomers, 1):
                heapq.heappush(agenda, newcomer)
        life = lives[device]
        if joins:
            heapq.heappush(agenda, (time + life.exponential(churn.stay), device, False))
        elif life.random() < churn.return_probability:
            heapq.heappush(agenda, (time + life.exponential(churn.away), device, True))
        else:
            del lives[device]


def _returning(names: tuple[Name, ...], away: float, count: int) -> Iterator[float]:
    """Yield, in order, the times at which the devices that are away at time 0 join.

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
