"""What the settings of a schedule mean: its trace, and its times in one unit.

Settings keep what a user wrote, such as "1d". Here it becomes a number: of seconds in a random
schedule, and of a trace's own units of time with a trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from ebbflow.config.schedule_checks import USUAL_INTERVAL
from ebbflow.config.schema import ScheduleSettings
from ebbflow.core.errors import EbbflowError
from ebbflow.data.traces.durations import in_seconds, seconds
from ebbflow.data.traces.trace import Cut
from ebbflow.data.traces.trace_files import Trace, TraceRules, open_trace


class ScheduleTimes(NamedTuple):
    """The cut into sessions and the duration of a round, in one unit of time."""

    cut: Cut
    round_time: float | None


class Churning(NamedTuple):
    """The times of a random schedule: in seconds, or in whatever unit its plain numbers are."""

    cut: Cut
    round_time: float | None
    stay: float
    away: float


def random_times(choice: ScheduleSettings) -> Churning:
    """Return the times of a random schedule."""
    interval = in_seconds(choice.interval or USUAL_INTERVAL)
    cut = Cut(choice.cut, interval, choice.change, choice.min_devices, choice.newcomers)
    round_time = None if choice.round_time is None else in_seconds(choice.round_time)
    return Churning(cut, round_time, in_seconds(choice.stay), in_seconds(choice.away))


def scheduled_trace(choice: ScheduleSettings, odd: Literal["stop", "mend"] | None = None) -> Trace:
    """Read the trace that a schedule names; ``odd`` replaces what the schedule says of oddities."""
    columns = choice.columns.model_dump(exclude_none=True)
    return open_trace(Path(choice.file or ""), TraceRules(columns, choice.unit, odd or choice.odd))


def trace_times(choice: ScheduleSettings, trace: Trace) -> ScheduleTimes:
    """Return the cut and the duration of a round in the trace's unit of time."""
    interval = None
    if choice.cut == "interval":
        if choice.interval is None and trace.stamped:
            raise EbbflowError(
                f"The trace {choice.file} has timestamps, and without `schedule.interval` it would "
                'be cut every second; set that to the length of a session, such as "1d".'
            )
        interval = _in_units("interval", choice.interval or USUAL_INTERVAL, choice, trace)
    cut = Cut(choice.cut, interval, choice.change, choice.min_devices, choice.newcomers)
    if choice.round_time is None:
        return ScheduleTimes(cut, None)
    return ScheduleTimes(cut, _in_units("round_time", choice.round_time, choice, trace))


def trace_warnings(choice: ScheduleSettings) -> tuple[str, ...]:
    """Return a sentence for every kind of oddity that was mended in a schedule's trace."""
    if choice.kind != "trace" or choice.odd != "mend":
        return ()
    found = scheduled_trace(choice).oddities
    return tuple(f"The trace {choice.file} has {oddity.sentence}." for oddity in found)


def _in_units(key: str, value: float | str, choice: ScheduleSettings, trace: Trace) -> float:
    """Return a plain number as it is, and a duration in the trace's unit of time."""
    if not isinstance(value, str):
        return value
    if trace.unit is None:
        raise EbbflowError(
            f'`schedule.{key}` is "{value}", but nothing says what the numbers in the trace '
            f"{choice.file} count; set `schedule.unit` to what 1 stands for, such as "
            f'"{_likely_unit(trace)}".'
        )
    return seconds(value) / trace.unit


def _likely_unit(trace: Trace) -> str:
    """Return what the times count if they are of our years; it is proposed, and never assumed."""
    for unit in ("1ms", "1us"):
        if trace._replace(unit=seconds(unit)).dated:
            return unit
    return "1s"
