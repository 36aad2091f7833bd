"""Rows of a trace: CSV or JSON Lines, and which of their columns are meant."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.data.traces.trace_oddities import NO_ZONE, NUMBER

EVENT_FORM = ("time", "device", "event")
STAY_FORM = ("device", "start", "end")
SHOWN = 60
"""Characters of a line that a message shows."""

_PAIRS = (
    ("join", "leave"),
    ("arrive", "depart"),
    ("connect", "disconnect"),
    ("online", "offline"),
    ("up", "down"),
    ("in", "out"),
    ("1", "0"),
)
WORDS = {word: joins for pair in _PAIRS for word, joins in zip(pair, (True, False), strict=True)}
"""Whether a word for an event is a join."""


class TraceRow(NamedTuple):
    """The values of one line, in the order of the form's columns."""

    line: int
    values: tuple[object, ...]


class TraceTable(NamedTuple):
    """The rows of a trace; ``form`` are our names of the columns: events, or stays."""

    form: tuple[str, ...]
    rows: Iterator[TraceRow]


def csv_table(path: Path, text: str, columns: Mapping[str, str]) -> TraceTable | None:
    """Return the rows below a header; None if the file is empty."""
    lines = _csv_lines(path, text)
    first = next(lines, None)
    if first is None:
        return None
    number, header = first
    written = ",".join(header)
    form = _form(header, columns)
    if form is None:
        raise EbbflowError(
            f"{path}, line {number}: the header {written!r} {_wanted(columns)}; say "
            "under `schedule.columns` what the file calls them, as in "
            f'`schedule.columns.device = "{header[0][:SHOWN]}"`, or let it read '
            "'time,device,event'."
        )
    theirs = [columns.get(name, name) for name in form]
    for name in theirs:
        if header.count(name) != 1:
            raise EbbflowError(
                f"{path}, line {number}: the header {written!r} must name the column {name!r} "
                "once; let it read 'time,device,event'."
            )
    places = [header.index(name) for name in theirs]

    def rows() -> Iterator[TraceRow]:
        for line, fields in lines:
            if len(fields) != len(header):
                raise EbbflowError(
                    f"{path}, line {line}: {len(fields)} fields {','.join(fields)!r} under a "
                    f"header of {len(header)}; give one field per column."
                )
            yield TraceRow(line, tuple(fields[place] for place in places))

    return TraceTable(form, rows())


def json_table(path: Path, text: str, columns: Mapping[str, str]) -> TraceTable | None:
    """Return the rows of a file with one JSON object per line; None if the file is empty."""
    lines = _json_lines(path, text)
    first = next(lines, None)
    if first is None:
        return None
    form = _form(first[1], columns)
    if form is None:
        raise EbbflowError(_missing(path, *first, _nearest_form(first[1], columns), columns))

    def rows() -> Iterator[TraceRow]:
        record: Mapping[str, object]
        for line, record in (first, *lines):
            try:
                yield TraceRow(line, tuple(record[columns.get(name, name)] for name in form))
            except KeyError:
                raise EbbflowError(_missing(path, line, record, form, columns)) from None

    return TraceTable(form, rows())


def _forms(columns: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the forms that a trace may have: just one if its columns have been named."""
    if columns.keys() & {"start", "end"}:
        return [STAY_FORM]
    if columns.keys() & {"time", "event"}:
        return [EVENT_FORM]
    return [EVENT_FORM, STAY_FORM]


def _form(found: Collection[str], columns: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the first form whose columns were all found."""
    for form in _forms(columns):
        if all(columns.get(name, name) in found for name in form):
            return form
    return None


def _nearest_form(found: Mapping[str, object], columns: Mapping[str, str]) -> tuple[str, ...]:
    def lacking(form: tuple[str, ...]) -> int:
        return sum(columns.get(name, name) not in found for name in form)

    return min(_forms(columns), key=lacking)


def _wanted(columns: Mapping[str, str]) -> str:
    """Return the columns of every form that is possible, as this user calls them."""
    named = [[repr(columns.get(name, name)) for name in form] for form in _forms(columns)]
    lists = [f"{a}, {b} and {c}" for a, b, c in named]
    return (
        f"does not name {lists[0]}" if len(lists) == 1 else f"names neither {' nor '.join(lists)}"
    )


def _missing(
    path: Path,
    line: int,
    record: Mapping[str, object],
    form: tuple[str, ...],
    columns: Mapping[str, str],
) -> str:
    theirs = [columns.get(name, name) for name in form]
    missing = next(name for name in theirs if name not in record)
    shown = json.dumps(record)[:SHOWN]
    return (
        f"{path}, line {line}: the key {missing!r} is missing from {shown!r}; give {theirs[0]}, "
        f"{theirs[1]} and {theirs[2]} on every line, or say under `schedule.columns` what the file "
        "calls them: time, device and event, or device, start and end."
    )


def _csv_lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the fields of every non-blank line."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            fields = [field.strip() for field in row]
            if any(fields):
                yield reader.line_num, fields
    except csv.Error as error:
        raise EbbflowError(
            f"{path}, line {reader.line_num}: this is not CSV ({error}); mend the line or name a "
            "JSON Lines file '.jsonl'."
        ) from error


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the line number and the object of every non-blank line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        shown = line.strip()[:SHOWN]
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
        yield number, record


# --- values --------------------------------------------------------------------------------------


def device_name(place: str, value: object) -> str:
    """Return the name of a device: a text, or a whole number."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise EbbflowError(
            f"{place}: {value!r} is no device name; give a text that is not empty, or a whole "
            "number."
        )
    return str(value)


def is_join(place: str, value: object) -> bool:
    """Return whether the word for an event, or 1 or 0, is a join."""
    word = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    joins = WORDS.get(word.lower())
    if joins is None:
        others = ", ".join("/".join(pair) for pair in _PAIRS[1:])
        raise EbbflowError(
            f"{place}: the event {value!r} is unknown; write 'join' or 'leave' (or {others})."
        )
    return joins


class Timestamps:
    """Reads times, and remembers which lines gave them in which zone."""

    def __init__(self) -> None:
        self.zones: dict[str, list[int]] = {}
        """The lines of every zone, of timestamps without one, and of bare numbers."""

    def read(self, place: str, line: int, value: object) -> float:
        """Return a number as it is, and a timestamp as seconds since 1970 in UTC."""
        time, zone = math.nan, NUMBER
        try:
            if isinstance(value, str):
                try:
                    time = float(value)
                except ValueError:
                    stamp = datetime.fromisoformat(value)
                    zone = NO_ZONE if stamp.tzinfo is None else str(stamp.tzinfo)
                    time = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
            elif isinstance(value, int | float) and not isinstance(value, bool):
                time = float(value)
        except (ValueError, OverflowError):
            time = math.nan
        if not math.isfinite(time):
            raise EbbflowError(
                f"{place}: the time {value!r} is neither a finite number nor an ISO-8601 "
                "timestamp; write it like 12.5 or 2024-05-01T12:00:00Z."
            )
        self.zones.setdefault(zone, []).append(line)
        return time
