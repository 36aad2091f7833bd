"""What a trace is like, and the sessions that it would be cut into."""

from __future__ import annotations

from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.data.traces.cutting import Events, Span
from ebbflow.data.traces.trace import Cut, numbered_events, session_spans
from ebbflow.data.traces.trace_files import Trace
from ebbflow.data.traces.trace_oddities import MENDED, WHAT

MOST_SESSIONS = 1000
"""Sessions that are compared with each other; nobody looks at more."""


class Stays(NamedTuple):
    """Who was there when: ``devices[i]`` from ``starts[i]`` to ``ends[i]``; not all have ended."""

    devices: NDArray[np.int64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    ended: NDArray[np.bool_]


class TraceFacts(NamedTuple):
    """A trace in numbers, in its own unit of time.

    ``median_stay`` is that of stays that end, ``median_absence`` that of absences before a return;
    they are None if there are none. ``present``, ``least`` and ``most`` count the devices present:
    on average over time, at the emptiest and at the fullest moment before the last event.
    """

    devices: int
    events: int
    first: float
    last: float
    median_stay: float | None
    median_absence: float | None
    present: float
    least: int
    most: int


class SessionFacts(NamedTuple):
    """One session that a trace would be cut into, beside those before it.

    ``joined`` and ``left`` are counted against the session before, ``back`` are those of the former
    that an earlier one had. ``common`` is the share of devices in common with the session before
    (of those in either), ``nearest`` that with ``nearest_session``, the most similar earlier one.
    """

    session: int
    start: float
    length: float
    devices: int
    joined: int
    left: int
    back: int
    common: float | None
    nearest: float | None
    nearest_session: int | None


class TraceCut(NamedTuple):
    """The first sessions of a cut, the number of all, and when each of them starts."""

    sessions: list[SessionFacts]
    total: int
    starts: list[float]


def stays_of(trace: Trace) -> Stays:
    """Return every stay, by device and start; devices are numbered by their first appearance."""
    _, (times, devices, joins) = numbered_events(trace.events)
    order = np.argsort(devices, kind="stable")
    times, devices, joins = times[order], devices[order], joins[order]
    begins = np.flatnonzero(joins)
    # In order of device and time, the leave of a stay follows its join, if there is one.
    after = np.minimum(begins + 1, len(joins) - 1)
    ended = ~joins[after] & (devices[after] == devices[begins])
    ends = np.where(ended, times[after], trace.events[-1].time)
    return Stays(devices[begins], times[begins], ends, ended)


def trace_facts(trace: Trace) -> TraceFacts:
    """Count what is in a trace."""
    names, events = numbered_events(trace.events)
    stays = stays_of(trace)
    lengths = (stays.ends - stays.starts)[stays.ended]
    same = stays.devices[1:] == stays.devices[:-1]
    absences = (stays.starts[1:] - stays.ends[:-1])[same]
    instants, counts = _presence(events)
    spans = np.diff(instants)
    mean = float(np.average(counts[:-1], weights=spans)) if len(spans) else float(counts[0])
    during = counts[:-1] if len(spans) else counts
    return TraceFacts(
        devices=len(names),
        events=len(trace.events),
        first=float(instants[0]),
        last=float(instants[-1]),
        median_stay=median(lengths.tolist()) if len(lengths) else None,
        median_absence=median(absences.tolist()) if len(absences) else None,
        present=mean,
        least=int(during.min()),
        most=int(during.max()),
    )


def _presence(events: Events) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the instants of a trace, and how many are present after the events of each."""
    counts = np.cumsum(np.where(events.joins, 1, -1))
    last_of_instant = np.append(np.flatnonzero(np.diff(events.times)), len(counts) - 1)
    return events.times[last_of_instant], counts[last_of_instant]


def trace_cut(trace: Trace, cut: Cut) -> TraceCut:
    """Return the sessions that a trace would be cut into."""
    names, events = numbered_events(trace.events)
    spans = session_spans([events], cut, None)
    facts = _compared(spans[:MOST_SESSIONS], len(names))
    return TraceCut(facts, len(spans), [span.start for span in spans])


def _compared(spans: tuple[Span, ...], devices: int) -> list[SessionFacts]:
    """Compare each session with all before it; eight devices take one byte of a row."""
    members = np.zeros((len(spans), -(-devices // 8)), dtype=np.uint8)
    sizes = np.array([len(span.devices) for span in spans])
    seen = np.zeros(devices, dtype=bool)
    before = np.zeros(devices, dtype=bool)
    facts: list[SessionFacts] = []
    for place, span in enumerate(spans):
        present = np.zeros(devices, dtype=bool)
        present[span.devices] = True
        members[place] = np.packbits(present)
        shared = np.bitwise_count(members[:place] & members[place]).sum(axis=1, dtype=np.int64)
        shares = shared / (sizes[:place] + sizes[place] - shared)
        nearest = int(shares.argmax()) if place else None
        facts.append(
            SessionFacts(
                session=place + 1,
                start=span.start,
                length=span.duration,
                devices=int(sizes[place]),
                joined=int((present & ~before).sum()),
                left=int((before & ~present).sum()),
                back=int((present & ~before & seen).sum()),
                common=float(shares[-1]) if place else None,
                nearest=None if nearest is None else float(shares[nearest]),
                nearest_session=None if nearest is None else nearest + 1,
            )
        )
        seen |= present
        before = present
    return facts


def trace_record(trace: Trace, facts: TraceFacts, cut: TraceCut | None) -> dict[str, Any]:
    """Return everything as JSON may hold it; without a cut there are no sessions."""
    odd = [
        {
            "kind": oddity.kind,
            "what": WHAT[oddity.kind][1],
            "mended": MENDED[oddity.kind],
            "places": list(oddity.places),
            "first": oddity.first,
        }
        for oddity in trace.oddities
    ]
    return {
        **facts._asdict(),
        "unit_seconds": trace.unit,
        "timestamps": trace.stamped,
        "odd": odd,
        "session_count": None if cut is None else cut.total,
        "sessions": None if cut is None else [each._asdict() for each in cut.sessions],
    }
