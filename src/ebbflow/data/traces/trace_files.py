"""Traces from files: joins and leaves, or stays, as CSV or JSON Lines; FedScale's as JSON.

A file is checked completely before it is used, and errors name the file and the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import is_stream
from ebbflow.data.traces.durations import seconds
from ebbflow.data.traces.trace import TraceEvent
from ebbflow.data.traces.trace_fedscale import read_availability, refuse_pickle
from ebbflow.data.traces.trace_oddities import (
    NUMBER,
    Oddities,
    Oddity,
    Stay,
    check_zones,
    consistent_events,
    stay_events,
)
from ebbflow.data.traces.trace_tables import (
    EVENT_FORM,
    Timestamps,
    TraceTable,
    csv_table,
    device_name,
    is_join,
    json_table,
)

EPOCH = (1e9, 1e10)
"""Numbers in this range are seconds since 1970, of the years from 2001 to 2286."""


class TraceRules(NamedTuple):
    """How a trace is read.

    Attributes:
        columns: What the file calls our columns, where it calls them otherwise.
        unit: What its bare numbers count, such as "1h"; None if nobody has said.
        odd: Whether a trace that contradicts itself is refused or mended.
    """

    columns: Mapping[str, str] = {}
    unit: str | None = None
    odd: Literal["stop", "mend"] = "stop"


class Trace(NamedTuple):
    """Joins and leaves in order of time, and what was odd about them.

    Attributes:
        events: The joins and leaves; a device is absent when it joins and present when it leaves.
        oddities: What was mended.
        unit: The seconds of one unit of the trace's time; None if it is not known.
        stamped: Whether its times were written as timestamps.
    """

    events: list[TraceEvent]
    oddities: tuple[Oddity, ...]
    unit: float | None
    stamped: bool

    @property
    def dated(self) -> bool:
        """Whether times are known to be counted from 1970."""
        return self.stamped or (self.unit is not None and _since_1970(self.events, self.unit))


def read_trace(path: Path) -> list[TraceEvent]:
    """Return the joins and leaves of a file that needs no rules of its own."""
    return open_trace(path).events


def open_trace(path: Path, rules: TraceRules | None = None) -> Trace:
    """Read a trace, sorted by time; equal times keep the file's order.

    A name ending in ``.jsonl`` or ``.ndjson`` is read as JSON Lines, one object per line; one in
    ``.json`` as FedScale's client availability; any other as CSV with a header line. CSV and JSON
    Lines have either ``time``, ``device`` and ``event`` (``join`` or ``leave``, or another word for
    it) or ``device``, ``start`` and ``end``, which may be empty; anything else is ignored. A time
    is a number, in any unit, or an ISO-8601 timestamp, which becomes seconds since 1970; a
    timestamp without a time zone is UTC. In order of time, a device must be absent when it joins
    and present when it leaves.
    """
    rules = rules or TraceRules()
    content = _content(path)
    refuse_pickle(path, content)
    text = _decoded(path, content)
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _from_fedscale(path, text, rules)
    lines = suffix in {".jsonl", ".ndjson"}
    table = (json_table if lines else csv_table)(path, text, rules.columns)
    oddities = Oddities(path, "line {}".format, rules.odd == "stop")
    stamps = Timestamps()
    events = _from_table(path, table, stamps, oddities) if table else []
    if not events:
        raise EbbflowError(
            f"The trace {path} holds no event; give `schedule.file` a trace with at least one join."
        )
    stamped = any(zone != NUMBER for zone in stamps.zones)
    return Trace(events, oddities.found, _unit(path, events, stamped, rules.unit), stamped)


def _from_table(
    path: Path, table: TraceTable, stamps: Timestamps, oddities: Oddities
) -> list[TraceEvent]:
    if table.form == EVENT_FORM:
        events: list[tuple[int, TraceEvent]] = []
        for line, (time, device, event) in table.rows:
            place = f"{path}, line {line}"
            name, joins = device_name(place, device), is_join(place, event)
            events.append((line, TraceEvent(stamps.read(place, line, time), name, joins)))
        events.sort(key=lambda numbered: numbered[1].time)
        check_zones(stamps.zones, oddities)
        return consistent_events(events, oddities)
    stays: list[tuple[int, Stay]] = []
    for line, (device, start, end) in table.rows:
        place = f"{path}, line {line}"
        name, begins = device_name(place, device), stamps.read(place, line, start)
        ends = None if end is None or end == "" else stamps.read(place, line, end)
        stays.append((line, Stay(name, begins, ends)))
    check_zones(stamps.zones, oddities)
    return stay_events(stays, oddities)


def _from_fedscale(path: Path, text: str, rules: TraceRules) -> Trace:
    if rules.columns:
        raise EbbflowError(
            f"The trace {path} is read as FedScale's client availability, which has no columns; "
            "leave `schedule.columns` out, or name a file with one object per line '.jsonl'."
        )
    stays, place = read_availability(path, text)
    oddities = Oddities(path, place, rules.odd == "stop")
    events = stay_events(stays, oddities)
    if not events:
        raise EbbflowError(
            f"The trace {path} holds no stay; give `schedule.file` a trace with at least one."
        )
    return Trace(events, oddities.found, seconds(rules.unit or "1s"), stamped=False)


def _unit(
    path: Path, events: Sequence[TraceEvent], stamped: bool, unit: str | None
) -> float | None:
    """Return the seconds of one unit of time, if they are known."""
    if stamped:
        if unit is not None and seconds(unit) != 1:
            raise EbbflowError(
                f'`schedule.unit` is "{unit}", but the trace {path} has timestamps, which are read '
                "in seconds; leave it out."
            )
        return 1.0
    if unit is not None:
        return seconds(unit)
    return 1.0 if _since_1970(events, 1.0) else None


def _since_1970(events: Sequence[TraceEvent], unit: float) -> bool:
    low, high = EPOCH
    return low <= events[0].time * unit and events[-1].time * unit < high


def _content(path: Path) -> bytes:
    try:
        if is_stream(path):
            raise EbbflowError(
                f"The trace {path} is a device or a pipe; point `schedule.file` to a file, which "
                "can be read again."
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise EbbflowError(
            f"The trace {path} does not exist; point `schedule.file` to a CSV or JSON Lines file."
        ) from error
    except OSError as error:
        raise EbbflowError(
            f"The trace {path} cannot be read ({error.strerror}); point `schedule.file` to a "
            "readable CSV or JSON Lines file."
        ) from error


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise EbbflowError(
            f"{path}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8 text; save "
            "the trace as UTF-8."
        ) from error
