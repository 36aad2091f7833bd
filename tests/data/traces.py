"""Traces for the tests of rosters."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import chain, groupby, islice, repeat

import numpy as np

from ebbflow.core.rng import Name, generator
from ebbflow.core.triggers import SLACK
from ebbflow.data.churn import Churn, random_events
from ebbflow.data.schedule import Presence, Roster
from ebbflow.data.traces.trace import Cut, TraceEvent

CHURN = Churn(arrivals=2.0, stay=3.0, return_probability=0.5, away=1.5, initial=4)


def random_trace(names: tuple[Name, ...], churn: Churn, horizon: float) -> list[TraceEvent]:
    """Draw the joins and leaves up to a time."""
    events: list[TraceEvent] = []
    for times, devices, joins in random_events(names, churn):
        for time, device, joined in zip(times.tolist(), devices.tolist(), joins, strict=True):
            if time > horizon:
                return events
            events.append(TraceEvent(time, f"d{device}", bool(joined)))
    return events


def trace(text: str) -> list[TraceEvent]:
    """Read events such as '0+a 2-b': at time 0 a joins, at 2 b leaves."""
    events = []
    for word in text.split():
        sign = "+" if "+" in word else "-"
        time, device = word.split(sign)
        events.append(TraceEvent(float(time), device, sign == "+"))
    return events


def plain(roster: Roster) -> tuple[list[str], list[Presence]]:
    """Return a roster as lists, which can be compared."""
    return list(roster.names), list(roster.sessions)


# --- plain twins of the fast code ----------------------------------------------------------------


def slow_events(names: tuple[Name, ...], churn: Churn) -> Iterator[TraceEvent]:
    """Draw joins and leaves one by one: after each event, find out whose comes next."""
    later = heapq.merge(_slow_returning(names, churn), _slow_arrivals(names, churn.arrivals))
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


def _slow_returning(names: tuple[Name, ...], churn: Churn) -> Iterator[float]:
    draw = generator(*names, "initially-away")
    time = 0.0
    for waiting in range(churn.initially_away, 0, -1):
        time += draw.exponential(churn.away / waiting)
        yield time


def _slow_arrivals(names: tuple[Name, ...], rate: float) -> Iterator[float]:
    arriving = generator(*names, "arrivals")
    time = 0.0
    while rate > 0:
        time += arriving.exponential(1 / rate)
        yield time


def slow_sessions(events: list[TraceEvent], cut: Cut) -> list[Presence]:
    """Cut a trace at every instant anew; a round takes a quarter of a unit of time."""
    events = sorted(events, key=lambda event: event.time)
    numbers: dict[str, int] = {}
    present: set[int] = set()
    moments: list[tuple[float, frozenset[int]]] = []
    for time, instant in groupby(events, key=lambda event: event.time):
        for event in instant:
            number = numbers.setdefault(event.device, len(numbers))
            (present.add if event.joins else present.discard)(number)
        moments.append((time, frozenset(present)))
    by_time = cut.rule == "interval"
    spans = _slow_windows(moments, cut) if by_time else _slow_changes(moments, cut)
    return [
        Presence(tuple(sorted(devices)), max(1, math.floor(duration / 0.25 + SLACK)))
        for devices, duration in spans
    ]


def _slow_windows(
    moments: list[tuple[float, frozenset[int]]], cut: Cut
) -> Iterator[tuple[frozenset[int], float]]:
    length = cut.interval or 0.0
    origin, last = moments[0][0], moments[-1][0]
    window = 0
    while origin + window * length <= last + SLACK * length:
        bound = origin + (window + SLACK) * length
        devices = [devices for time, devices in moments if time <= bound][-1]
        if len(devices) >= cut.min_devices:
            yield devices, length
        window += 1


def _slow_changes(
    moments: list[tuple[float, frozenset[int]]], cut: Cut
) -> Iterator[tuple[frozenset[int], float]]:
    members: frozenset[int] | None = None
    start = 0.0
    for time, devices in moments:
        if len(devices) < cut.min_devices:
            continue
        if members is not None:
            changed = len(members ^ devices)
            if changed == 0 or changed < (cut.change or 0.0) * len(devices) - SLACK:
                continue
            yield members, time - start
        members, start = devices, time
    if members is not None:
        yield members, moments[-1][0] - start
