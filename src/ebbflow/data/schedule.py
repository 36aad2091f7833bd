"""Who is here in which session, whatever the data.

A roster lists, session after session, the devices K^(s) and the number of rounds. It comes from
the paper's alternation of two groups, from a trace of joins and leaves, or from a random process
of arrivals and departures. ``participants`` then picks A^(s,t), the devices that train in a round.
"""

from __future__ import annotations

import csv
import heapq
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import Name, generator

EVENT_LIMIT = 200_000
"""Membership events that a random roster may draw before it gives up."""
SESSION_LIMIT = 1_000_000
"""Sessions that one trace may yield; more are taken for a slip in the unit of time."""

# Decimal settings such as 0.1 are not exact in binary; a product of theirs that misses a bound by
# less than this share of a window, a round or a device is meant to reach it.
_SLACK = 1e-6


class Presence(NamedTuple):
    """One session of a roster: its devices in ascending order, and its number of rounds T.

    ``rounds`` is None where the configuration's own number holds.
    """

    devices: tuple[int, ...]
    rounds: int | None = None


class Roster(NamedTuple):
    """The sessions s = 1, 2, ... in turn; ``names[i]`` is the external name of device ``i``."""

    names: tuple[str, ...]
    sessions: tuple[Presence, ...]


class TraceEvent(NamedTuple):
    """At ``time`` the device joins, or else leaves."""

    time: float
    device: str
    joins: bool


class Cut(NamedTuple):
    """How a trace falls into sessions.

    ``interval``: the windows [t_0 + i D, t_0 + (i+1) D) with t_0 the first event and D =
    ``interval`` are the sessions, as far as they start no later than the last event; a window at
    whose start fewer than ``min_devices`` are present is skipped.

    ``change``: the first session starts as soon as ``min_devices`` are present. A new one starts
    as soon as that many are present and the devices that are here now but were not at the
    session's start, or the other way round, number at least ``change`` times the devices now
    present. A device that left and came back in between is no change; 0 starts a session
    whenever the membership changes.
    """

    rule: Literal["interval", "change"]
    interval: float | None = None
    change: float | None = None
    min_devices: int = 1


def alternating(sessions: int, devices: int) -> Roster:
    """Return the paper's schedule: two groups of K devices take turns.

    Group A = {0, ..., K-1} is present in the odd sessions s = 1, 3, ... and group B =
    {K, ..., 2K-1} in the even ones.

    >>> [presence.devices for presence in alternating(3, 2).sessions]
    [(0, 1), (2, 3), (0, 1)]
    """
    _check_count("schedule.sessions", sessions, 1)
    _check_count("partition.devices", devices, 1)
    groups = (Presence(tuple(range(devices))), Presence(tuple(range(devices, 2 * devices))))
    return Roster(
        names=tuple(f"d{device}" for device in range(2 * devices)),
        sessions=tuple(groups[index % 2] for index in range(sessions)),
    )


def read_trace(path: Path) -> list[TraceEvent]:
    """Read joins and leaves from a file, sorted by time; equal times keep the file's order.

    A name in ``.jsonl`` or ``.ndjson`` is read as JSON Lines, one object per line; any other as
    CSV with a header line. Both carry ``time``, ``device`` and ``event`` (``join`` or ``leave``)
    and may carry more, which is passed over. A time is a number, in any unit, or an ISO-8601
    timestamp, which becomes seconds since 1970; a timestamp without a zone is taken as UTC.
    Taken in the order of time, a device must be absent when it joins and present when it leaves.
    """
    text = _decoded(path)
    lines = path.suffix.lower() in {".jsonl", ".ndjson"}
    records = _json_records(path, text) if lines else _csv_records(path, text)
    events = [(line, _event(f"{path}, line {line}", record)) for line, record in records]
    if not events:
        raise EbbflowError(
            f"The trace {path} holds no event; give `schedule.file` a trace with at least one join."
        )
    events.sort(key=lambda numbered: numbered[1].time)
    present: set[str] = set()
    for line, event in events:
        if event.joins == (event.device in present):
            fault = (
                "joins but is present already; add the leave that is missing before it"
                if event.joins
                else "leaves but is not present; add the join that is missing before it"
            )
            raise EbbflowError(
                f"{path}, line {line}: at time {event.time:.17g} device {event.device!r} {fault} "
                "or remove the line."
            )
        (present.add if event.joins else present.remove)(event.device)
    return [event for _, event in events]


def from_trace(
    events: Iterable[TraceEvent],
    cut: Cut,
    *,
    sessions: int | None = None,
    round_time: float | None = None,
) -> Roster:
    """Cut a trace into sessions.

    Events of the same time are applied together, and a session's devices are those present right
    after the events of its first instant; what happens later in a session takes effect in the
    next. Devices are numbered by their first appearance in the trace, and ``names`` ends with the
    last one that a session needs.

    Args:
        events: joins and leaves; they are sorted by time.
        cut: the rule that starts a session.
        sessions: take this many and fail if the trace yields fewer; None takes all.
        round_time: the time one round takes. A session then has max(1, floor(duration /
            round_time)) rounds. A session of the rule ``interval`` lasts one window; one of the
            rule ``change`` lasts until the next starts, and the last until the last event, so
            one that starts there has a single round.

    >>> trace = [TraceEvent(0, "a", True), TraceEvent(1, "b", True), TraceEvent(5, "a", False)]
    >>> from_trace(trace, Cut("interval", interval=2.0)).sessions[1].devices
    (0, 1)
    >>> roster = from_trace(trace, Cut("change", change=0.0), round_time=0.5)
    >>> [(presence.devices, presence.rounds) for presence in roster.sessions]
    [((0,), 2), ((0, 1), 8), ((1,), 1)]
    """
    roster = _cut(sorted(events, key=attrgetter("time")), cut, sessions, round_time)
    found = len(roster.sessions)
    if found == 0 or (sessions is not None and found < sessions):
        asked = "at least one is needed" if sessions is None else f"{sessions} are asked for"
        by_time = cut.rule == "interval"
        shorten = "shorten `schedule.interval`" if by_time else "lower `schedule.change`"
        raise EbbflowError(
            f"The trace yields {found} session{'s' * (found != 1)} where {asked}; lower "
            f"`schedule.sessions` or `schedule.min_devices` (now {cut.min_devices}), {shorten}, "
            "or give a longer trace in `schedule.file`."
        )
    return roster


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

    ``initial`` devices are present at time 0, and new ones arrive as a Poisson process. A stay
    and a time away are exponential; a device that leaves comes back with a fixed probability,
    each time anew. Devices are called d0, d1, ... in the order of their first arrival.

    Args:
        names: the key of the randomness, as for ``ebbflow.core.rng.generator``.
        arrivals: the mean number of new devices per unit of time.
        stay: the mean length of a stay.
        return_probability: the probability that a device that leaves comes back.
        away: the mean time until it does.
        horizon: the time of the last possible event.
        initial: the number of devices present at time 0.
    """
    _check_positive("schedule.horizon", horizon)
    stream = _random_events(
        names,
        arrivals=arrivals,
        stay=stay,
        return_probability=return_probability,
        away=away,
        initial=initial,
    )
    return list(takewhile(lambda event: event.time <= horizon, stream))


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
    round_time: float | None = None,
) -> Roster:
    """Cut the process of ``random_trace`` into exactly ``sessions`` sessions.

    The process runs for as long as the sessions need. Asking for more sessions leaves the
    earlier ones as they are.

    >>> cut = Cut("interval", interval=1.0, min_devices=2)
    >>> churn = dict(arrivals=2.0, stay=3.0, return_probability=0.5, away=1.0)
    >>> short = random_roster((100, "schedule"), sessions=3, cut=cut, **churn)
    >>> longer = random_roster((100, "schedule"), sessions=6, cut=cut, **churn)
    >>> len(longer.sessions), longer.sessions[:3] == short.sessions
    (6, True)
    """
    stream = _random_events(
        names,
        arrivals=arrivals,
        stay=stay,
        return_probability=return_probability,
        away=away,
        initial=initial,
    )
    roster = _cut(islice(stream, EVENT_LIMIT), cut, sessions, round_time)
    found = len(roster.sessions)
    if found < sessions:
        raise EbbflowError(
            f"The random schedule yields {found} of {sessions} sessions before it dies out or "
            f"reaches {EVENT_LIMIT:,} joins and leaves; raise `schedule.arrivals` (now {arrivals}) "
            f"or `schedule.stay` (now {stay}), or lower `schedule.sessions` or "
            f"`schedule.min_devices` (now {cut.min_devices})."
        )
    return roster


def participants(
    rng: np.random.Generator,
    devices: Sequence[int],
    sizes: Sequence[int],
    share: float | int | None,
    weighting: Literal["uniform", "weighted"],
) -> tuple[int, ...]:
    """Return A^(s,t), the devices that train in a round, in the order of ``devices``.

    Args:
        rng: the source of the draw; all devices are taken without one.
        devices: the devices K^(s) that are present.
        sizes: the number of samples D_k of each of them.
        share: None takes all; a float in (0, 1] that fraction of them, halves rounded up, but at
            least one; an int that many, or all if fewer are present. So 1.0 is everyone and 1 a
            single device.
        weighting: drawn without replacement, ``uniform``, or ``weighted``: each next device with
            probability D_k over the samples of those not yet drawn.

    >>> participants(np.random.default_rng(0), (4, 7, 9), (10, 10, 10), None, "uniform")
    (4, 7, 9)
    >>> len(participants(np.random.default_rng(0), (4, 7, 9), (10, 10, 10), 0.5, "weighted"))
    2
    """
    present = len(devices)
    if len(sizes) != present:
        raise ValueError(f"{present} devices but {len(sizes)} sizes")
    if weighting not in ("uniform", "weighted"):
        raise EbbflowError(
            f"`participation.weighting` is {weighting!r}; set it to 'uniform' or 'weighted'."
        )
    if present == 0:
        raise EbbflowError(
            "No device is present to take part in a round; raise `schedule.min_devices` so that "
            "no session is empty."
        )
    if share is None:
        return tuple(devices)
    if isinstance(share, float):
        if not 0.0 < share <= 1.0:
            raise EbbflowError(
                f"`participation.share` is {share}; give a fraction above 0 and at most 1, or a "
                "whole number of devices."
            )
        count = max(1, math.floor(share * present + 0.5 + _SLACK))
    else:
        _check_count("participation.share", share, 1)
        count = share
    if count >= present:
        return tuple(devices)
    if weighting == "uniform":
        chosen = rng.choice(present, size=count, replace=False)
    else:
        chosen = _weighted_draw(rng, devices, sizes, count)
    return tuple(devices[place] for place in sorted(chosen.tolist()))


def _weighted_draw(
    rng: np.random.Generator, devices: Sequence[int], sizes: Sequence[int], count: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Draw places with probability proportional to size, one after another.

    The ``count`` smallest of independent exponential times with rates D_k are such a draw.
    """
    for device, size in zip(devices, sizes, strict=True):
        if size < 1:
            raise EbbflowError(
                f"Device {device} holds {size} samples and cannot be drawn by its size; set "
                "`participation.weighting` to 'uniform' or lower `partition.devices`."
            )
    times = rng.standard_exponential(len(devices)) / np.asarray(sizes, dtype=np.float64)
    return np.argsort(times, kind="stable")[:count].astype(np.int64)


# Cutting a trace. Events are taken as they come, so that an endless random process can be cut too.


class _Span(NamedTuple):
    """The devices of a session and how long it lasts."""

    devices: frozenset[int]
    duration: float


class _Numbered(NamedTuple):
    """An event of a device that has its number."""

    time: float
    device: int
    joins: bool


def _cut(
    events: Iterable[TraceEvent], cut: Cut, sessions: int | None, round_time: float | None
) -> Roster:
    """Return the first ``sessions`` sessions of events sorted by time, or as many as there are."""
    if sessions is not None:
        _check_count("schedule.sessions", sessions, 1)
    if round_time is not None:
        _check_positive("schedule.round_time", round_time)
    _check_count("schedule.min_devices", cut.min_devices, 1)
    numbers: dict[str, int] = {}
    numbered = (
        _Numbered(event.time, numbers.setdefault(event.device, len(numbers)), event.joins)
        for event in events
    )
    spans = list(islice(_spans(numbered, cut), SESSION_LIMIT + 1 if sessions is None else sessions))
    if len(spans) > SESSION_LIMIT:
        raise EbbflowError(
            f"The trace yields more than {SESSION_LIMIT:,} sessions; set `schedule.sessions`, or "
            "check that `schedule.interval` is in the trace's unit of time."
        )
    last = max((max(span.devices) for span in spans), default=-1)
    return Roster(
        names=tuple(islice(numbers, last + 1)),
        sessions=tuple(
            Presence(tuple(sorted(span.devices)), _rounds(span.duration, round_time))
            for span in spans
        ),
    )


def _rounds(duration: float, round_time: float | None) -> int | None:
    if round_time is None:
        return None
    return max(1, math.floor(duration / round_time + _SLACK))


def _spans(events: Iterable[_Numbered], cut: Cut) -> Iterator[_Span]:
    """Choose the rule and check the setting that it needs."""
    if cut.rule == "interval":
        if cut.interval is None:
            raise EbbflowError(
                "`schedule.cut` is 'interval' but `schedule.interval` is missing; set it to the "
                "length of a session in the trace's unit of time."
            )
        _check_positive("schedule.interval", cut.interval)
        return _windows(events, cut.interval, cut.min_devices)
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
        return _changes(events, cut.change, cut.min_devices)
    raise EbbflowError(f"`schedule.cut` is {cut.rule!r}; set it to 'interval' or 'change'.")


def _instants(events: Iterable[_Numbered], present: set[int]) -> Iterator[tuple[float, bool]]:
    """Apply to ``present`` all events of a time, time by time.

    Each time comes twice: with False just before its events are applied and with True just after.
    """
    for time, group in groupby(events, key=attrgetter("time")):
        yield time, False
        for event in group:
            (present.add if event.joins else present.discard)(event.device)
        yield time, True


def _windows(events: Iterable[_Numbered], length: float, least: int) -> Iterator[_Span]:
    """Yield the sessions of the rule ``interval``."""
    present: set[int] = set()
    origin: float | None = None
    window = 0
    time = 0.0
    for time, applied in _instants(events, present):
        if origin is None:
            origin = time
        if applied:
            continue
        # A window that starts before this instant sees the devices of before it.
        while origin + (window + _SLACK) * length < time:
            if len(present) >= least:
                yield _Span(frozenset(present), length)
                window += 1
            else:
                # The next windows, however many, find as few devices until this instant.
                window = max(window + 1, math.ceil((time - origin) / length - _SLACK))
    if (
        origin is not None
        and len(present) >= least
        and origin + window * length <= (time + _SLACK * length)
    ):
        yield _Span(frozenset(present), length)


def _changes(events: Iterable[_Numbered], fraction: float, least: int) -> Iterator[_Span]:
    """Yield the sessions of the rule ``change``."""
    present: set[int] = set()
    members: frozenset[int] | None = None
    start = time = 0.0
    for time, applied in _instants(events, present):
        if not applied or len(present) < least:
            continue
        if members is not None:
            changed = len(members ^ present)
            if changed == 0 or changed < fraction * len(present) - _SLACK:
                continue
            yield _Span(members, time - start)
        members, start = frozenset(present), time
    if members is not None:
        yield _Span(members, time - start)


# The random process of arrivals and departures.


def _random_events(
    names: tuple[Name, ...],
    *,
    arrivals: float,
    stay: float,
    return_probability: float,
    away: float,
    initial: int,
) -> Iterator[TraceEvent]:
    """Check the settings and return the process's events in the order of time."""
    if not (math.isfinite(arrivals) and arrivals >= 0):
        raise EbbflowError(
            f"`schedule.arrivals` is {arrivals}; give a finite number that is at least 0."
        )
    _check_positive("schedule.stay", stay)
    if not 0.0 <= return_probability <= 1.0:
        raise EbbflowError(
            f"`schedule.return_probability` is {return_probability}, not a probability; give a "
            "number from 0 to 1."
        )
    _check_positive("schedule.away", away)
    _check_count("schedule.initial", initial, 0)
    if arrivals == 0 and initial == 0:
        raise EbbflowError(
            "`schedule.arrivals` and `schedule.initial` are both 0, so no device ever comes; "
            "raise one of them."
        )
    return _churn(names, arrivals, stay, return_probability, away, initial)


def _churn(
    names: tuple[Name, ...],
    arrivals: float,
    stay: float,
    return_probability: float,
    away: float,
    initial: int,
) -> Iterator[TraceEvent]:
    """Yield the events of the checked process; it ends only when no device can come any more."""
    arriving = generator(*names, "arrivals")
    # A device's life has a generator of its own: nobody else's arrival or leave changes it.
    lives: dict[int, np.random.Generator] = {}
    agenda = [(0.0, device, True) for device in range(initial)]
    newest = initial
    if arrivals > 0:
        agenda.append((arriving.exponential(1 / arrivals), newest, True))
    heapq.heapify(agenda)
    while agenda:
        time, device, joins = heapq.heappop(agenda)
        yield TraceEvent(time, f"d{device}", joins)
        if device not in lives:
            lives[device] = generator(*names, "life", device)
            if device == newest:
                newest += 1
                heapq.heappush(agenda, (time + arriving.exponential(1 / arrivals), newest, True))
        life = lives[device]
        if joins:
            heapq.heappush(agenda, (time + life.exponential(stay), device, False))
        elif life.random() < return_probability:
            heapq.heappush(agenda, (time + life.exponential(away), device, True))
        else:
            del lives[device]


# Reading a trace.

_COLUMNS = ("time", "device", "event")


def _decoded(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise EbbflowError(
            f"The trace {path} does not exist; point `schedule.file` to a CSV or JSON Lines file."
        ) from error
    except OSError as error:
        raise EbbflowError(
            f"The trace {path} cannot be read ({error.strerror}); point `schedule.file` to a "
            "readable CSV or JSON Lines file."
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise EbbflowError(
            f"{path}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8 text; save "
            "the trace as UTF-8."
        ) from error


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield line number and named fields of every line below the header that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header: list[str] | None = None
    try:
        for row in reader:
            fields = [field.strip() for field in row]
            if not any(fields):
                continue
            if header is None:
                header = fields
                for column in _COLUMNS:
                    if header.count(column) != 1:
                        raise EbbflowError(
                            f"{path}, line {reader.line_num}: the header {','.join(header)!r} must "
                            f"name the column {column!r} once; let it read 'time,device,event'."
                        )
                continue
            if len(fields) != len(header):
                raise EbbflowError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields {','.join(fields)!r} "
                    f"under a header of {len(header)}; give one field per column."
                )
            yield reader.line_num, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise EbbflowError(
            f"{path}, line {reader.line_num}: this is not CSV ({error}); mend the line or name a "
            "JSON Lines file '.jsonl'."
        ) from error


def _json_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield line number and object of every line that is not blank."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        shown = line.strip()[:60]
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EbbflowError(
                f"{path}, line {number}: {shown!r} is not JSON; write one object per line."
            ) from error
        if not isinstance(record, dict):
            raise EbbflowError(
                f"{path}, line {number}: {shown!r} is not a JSON object; write one object with "
                "the keys time, device and event per line."
            )
        for key in _COLUMNS:
            if key not in record:
                raise EbbflowError(
                    f"{path}, line {number}: the key {key!r} is missing from {shown!r}; give "
                    "time, device and event on every line."
                )
        yield number, record


def _event(place: str, record: dict[str, object]) -> TraceEvent:
    device, event = record["device"], record["event"]
    if isinstance(device, bool) or not isinstance(device, str | int) or device == "":
        raise EbbflowError(
            f"{place}: {device!r} is no device name; give a text that is not empty, or a whole "
            "number."
        )
    if event not in ("join", "leave"):
        raise EbbflowError(f"{place}: the event {event!r} is unknown; write 'join' or 'leave'.")
    return TraceEvent(_seconds(place, record["time"]), str(device), event == "join")


def _seconds(place: str, value: object) -> float:
    """Return a time that is a number, or a timestamp as seconds since 1970 in UTC."""
    try:
        if isinstance(value, str):
            try:
                time = float(value)
            except ValueError:
                stamp = datetime.fromisoformat(value)
                time = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = float(value)
        else:
            time = math.nan
    except (ValueError, OverflowError):
        time = math.nan
    if not math.isfinite(time):
        raise EbbflowError(
            f"{place}: the time {value!r} is neither a finite number nor an ISO-8601 timestamp; "
            "write it like 12.5 or 2024-05-01T12:00:00Z."
        )
    return time


def _check_count(key: str, value: int, least: int) -> None:
    if value < least:
        raise EbbflowError(f"`{key}` is {value}; set it to at least {least}.")


def _check_positive(key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise EbbflowError(f"`{key}` is {value}; give a finite number above 0.")
