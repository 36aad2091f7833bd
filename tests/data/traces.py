"""Traces for the tests of rosters."""

from __future__ import annotations

from itertools import takewhile

from ebbflow.core.rng import Name
from ebbflow.data.churn import Churn, random_events
from ebbflow.data.trace import TraceEvent

CHURN = Churn(arrivals=2.0, stay=3.0, return_probability=0.5, away=1.5, initial=4)


def random_trace(names: tuple[Name, ...], churn: Churn, horizon: float) -> list[TraceEvent]:
    """Draw the joins and leaves up to a time."""
    return list(takewhile(lambda event: event.time <= horizon, random_events(names, churn)))


def trace(text: str) -> list[TraceEvent]:
    """Read events such as '0+a 2-b': at time 0 a joins, at 2 b leaves."""
    events = []
    for word in text.split():
        sign = "+" if "+" in word else "-"
        time, device = word.split(sign)
        events.append(TraceEvent(float(time), device, sign == "+"))
    return events
