"""What is odd about a trace, and what becomes of it.

A trace that contradicts itself is refused at the first place, or mended: then every kind of oddity
is told with its number and its places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazySequence
from ebbflow.data.traces.trace import TraceEvent

NUMBER, NO_ZONE = "number", "no zone"
"""What a time has in place of a zone if it is a bare number, or a timestamp that lacks one."""

WHAT = {
    "duplicate": ("line that repeats an earlier one", "lines that repeat an earlier one"),
    "second join": ("join of a device that is present", "joins of devices that are present"),
    "no join": ("leave without a join", "leaves without a join"),
    "second leave": ("leave of a device that has left", "leaves of devices that have left"),
    "overlap": (
        "stay that overlaps an earlier one of the same device",
        "stays that overlap an earlier one of the same device",
    ),
    "backwards": ("stay that ends before it begins", "stays that end before they begin"),
    "zones": (
        "timestamp in another time zone than the first",
        "timestamps in another time zone than the first",
    ),
    "no zone": (
        "timestamp without a time zone where others have one",
        "timestamps without a time zone where others have one",
    ),
    "number": ("bare number among timestamps", "bare numbers among timestamps"),
}
"""Every kind of oddity in words: one of them, and several."""
MENDED = {
    "duplicate": "such a line is left out",
    "second join": "a second join is left out",
    "no join": "such a device counts as present from the beginning of the trace",
    "second leave": "a second leave is left out",
    "overlap": "stays that overlap become one",
    "backwards": "such a stay is left out",
    "zones": "every timestamp counts by its own zone",
    "no zone": "such a timestamp is UTC",
    "number": "such a number counts as seconds since 1970",
}
"""What becomes of each kind if it is mended."""


class Oddity(NamedTuple):
    """One kind of oddity: all its places, and a clause about the first."""

    kind: str
    places: Sequence[str]
    first: str

    @property
    def sentence(self) -> str:
        """What was found, and what has become of it."""
        one, several = WHAT[self.kind]
        count = len(self.places)
        return (
            f"{count:,} {one if count == 1 else several} (the first at {self.places[0]}: "
            f"{self.first}): {MENDED[self.kind]}"
        )


class Stay(NamedTuple):
    """A device is present from ``start`` to ``end``, or to the end of the trace."""

    device: str
    start: float
    end: float | None


class Oddities:
    """Collects what is odd, or raises an error at the first oddity."""

    def __init__(self, path: Path, place: Callable[[int], str], stop: bool) -> None:
        self._path, self._place, self._stop = path, place, stop
        self._numbers: dict[str, list[int]] = {}
        self._first: dict[str, str] = {}
        self.dated = False
        """Whether times are to be shown as dates."""

    def moment(self, time: float) -> str:
        """Return a time as a reader would look for it in the file."""
        if self.dated:
            with contextlib.suppress(OverflowError, ValueError, OSError):  # of no year we have
                return datetime.fromtimestamp(time, tz=UTC).isoformat().replace("+00:00", "Z")
        return f"{time:.17g}"

    def note(self, kind: str, number: int, fault: str, remedy: str) -> None:
        """Remember an oddity of the line with this number, or raise an error about it."""
        if self._stop:
            raise EbbflowError(
                f"{self._path}, {self._place(number)}: {fault}; {remedy}, or set `schedule.odd` to "
                f'"mend", where {MENDED[kind]}.'
            )
        self._numbers.setdefault(kind, []).append(number)
        self._first.setdefault(kind, fault)

    @property
    def found(self) -> tuple[Oddity, ...]:
        """Everything that was found, by kind."""
        return tuple(
            Oddity(kind, self._places(numbers), self._first[kind])
            for kind, numbers in self._numbers.items()
        )

    def _places(self, numbers: list[int]) -> Sequence[str]:
        return LazySequence(len(numbers), lambda index: self._place(numbers[index]))


def check_zones(zones: Mapping[str, list[int]], oddities: Oddities) -> None:
    """Note timestamps that do not fit the others; ``zones`` has the lines of each zone."""
    stamps = [zone for zone in zones if zone != NUMBER]
    known = [zone for zone in stamps if zone != NO_ZONE]
    oddities.dated = bool(stamps)
    if stamps:
        for line in zones.get(NUMBER, ()):
            fault = "the time is a bare number where others are timestamps"
            oddities.note("number", line, fault, "write it as a timestamp")
    if known:
        for line in zones.get(NO_ZONE, ()):
            fault = f"the timestamp has no time zone where others have one, such as {known[0]}"
            oddities.note("no zone", line, fault, "add its zone, as in 2024-05-01T12:00:00Z")
    for zone in known[1:]:
        for line in zones[zone]:
            fault = f"the timestamp is in the zone {zone} where others are in {known[0]}"
            oddities.note("zones", line, fault, "write all in the same zone")


def consistent_events(
    numbered: Sequence[tuple[int, TraceEvent]], oddities: Oddities
) -> list[TraceEvent]:
    """Return events, given in order of time, such that a device joins and leaves in turn."""
    last: dict[str, TraceEvent] = {}
    here_before: list[TraceEvent] = []
    kept: list[TraceEvent] = []
    for line, event in numbered:
        before = last.get(event.device)
        if event.joins == (before is not None and before.joins):
            _note_event(line, event, before, oddities)
            if before is not None:
                continue
            here_before.append(TraceEvent(numbered[0][1].time, event.device, joins=True))
        last[event.device] = event
        kept.append(event)
    return [*here_before, *kept]


def _note_event(
    line: int, event: TraceEvent, before: TraceEvent | None, oddities: Oddities
) -> None:
    told = f"at time {oddities.moment(event.time)} device {event.device!r}"
    does, lacking = ("joins", "leave") if event.joins else ("leaves", "join")
    remedy = f"add the {lacking} that is missing before it or remove the line"
    if before is not None and before.time == event.time:
        fault = f"{told} {does}, as an earlier line says already"
        oddities.note("duplicate", line, fault, remedy)
    elif event.joins:
        oddities.note("second join", line, f"{told} joins but is present already", remedy)
    else:
        kind = "no join" if before is None else "second leave"
        oddities.note(kind, line, f"{told} leaves but is not present", remedy)


class _Kept(NamedTuple):
    """The stays of a device that are left, and the line of the first of them."""

    line: int
    stays: list[Stay]


def stay_events(numbered: Iterable[tuple[int, Stay]], oddities: Oddities) -> list[TraceEvent]:
    """Return the joins and leaves of stays, in order of time.

    At the same time, devices follow the lines of their first stays, and each leaves before it comes
    back.
    """
    devices: dict[str, _Kept] = {}
    for line, stay in sorted(numbered, key=lambda each: each[1].start):
        told = f"device {stay.device!r} stays from {oddities.moment(stay.start)}"
        if stay.end is not None and stay.end < stay.start:
            fault = f"{told} to {oddities.moment(stay.end)}, which is earlier"
            oddities.note("backwards", line, fault, "exchange the two times or remove the stay")
            continue
        stays = devices.setdefault(stay.device, _Kept(line, [])).stays
        if not stays or (stays[-1].end is not None and stays[-1].end <= stay.start):
            stays.append(stay)
            continue
        if stay == stays[-1]:
            fault = f"{told} as an earlier line says already"
            oddities.note("duplicate", line, fault, "remove the line")
        else:
            earlier = oddities.moment(stays[-1].start)
            fault = f"{told}, before its earlier stay from {earlier} has ended"
            oddities.note("overlap", line, fault, "let one end before the next begins")
        stays[-1] = stays[-1]._replace(end=_later(stays[-1].end, stay.end))
    in_turn = sorted(devices.values(), key=lambda kept: kept.line)
    events = [event for kept in in_turn for stay in kept.stays for event in _both(stay)]
    return sorted(events, key=lambda event: event.time)


def _later(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _both(stay: Stay) -> list[TraceEvent]:
    join = TraceEvent(stay.start, stay.device, joins=True)
    if stay.end is None:
        return [join]
    return [join, TraceEvent(stay.end, stay.device, joins=False)]
