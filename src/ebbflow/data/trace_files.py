"""Traces from files: CSV or JSON Lines, one join or leave per line.

A file is checked completely before it is used, and errors name the file and the line.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import is_stream
from ebbflow.data.trace import TraceEvent

_COLUMNS = ("time", "device", "event")


def read_trace(path: Path) -> list[TraceEvent]:
    """Read joins and leaves from a file, sorted by time; equal times keep the file's order.

    A name ending in ``.jsonl`` or ``.ndjson`` is read as JSON Lines, one object per line; any other
    as CSV with a header line. Both have ``time``, ``device`` and ``event`` (``join`` or ``leave``);
    anything else is ignored. A time is a number, in any unit, or an ISO-8601 timestamp, which
    becomes seconds since 1970; a timestamp without a time zone is UTC. In order of time, a device
    must be absent when it joins and present when it leaves.
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
    _check_presence(path, events)
    return [event for _, event in events]


def _decoded(path: Path) -> str:
    try:
        if is_stream(path):
            raise EbbflowError(
                f"The trace {path} is a device or a pipe; point `schedule.file` to a file, which "
                "can be read again."
            )
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
    """Yield the line number and the named fields of every non-blank line below the header."""
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
    """Yield the line number and the object of every non-blank line."""
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
    """Return a numeric time as it is, and a timestamp as seconds since 1970 in UTC."""
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


def _check_presence(path: Path, events: Iterable[tuple[int, TraceEvent]]) -> None:
    """Raise an error if a device joins while present or leaves while absent."""
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
