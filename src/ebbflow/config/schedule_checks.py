"""Keys of a schedule that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from ebbflow.config.schema import ScheduleSettings

USUAL_INTERVAL = 1.0
"""The length of a session if nobody has chosen one."""


def schedule_contradictions(schedule: ScheduleSettings) -> Iterator[str]:
    """Yield what a schedule cannot use, and times of which only some have a unit."""
    if schedule.kind != "trace":
        yield from _without_a_trace(schedule)
    columns = schedule.columns.model_dump(exclude_none=True)
    events, stays = ([key for key in keys if key in columns] for keys in _FORMS)
    if events and stays:
        yield (
            f"schedule.columns.{events[0]} belongs to a trace of joins and leaves and "
            f"schedule.columns.{stays[0]} to one of stays: name the columns of the one that it is"
        )
    if schedule.kind == "random":
        yield from _mixed_units(schedule)


_FORMS = (("time", "event"), ("start", "end"))


def _without_a_trace(schedule: ScheduleSettings) -> Iterator[str]:
    columns = schedule.columns.model_dump(exclude_none=True)
    written = [f'schedule.columns.{key} = "{value}"' for key, value in columns.items()]
    if schedule.unit is not None:
        written.append(f'schedule.unit = "{schedule.unit}"')
    if schedule.odd != "stop":
        written.append(f'schedule.odd = "{schedule.odd}"')
    for setting in written:
        yield f'{setting} is only read with schedule.kind = "trace": set that or leave it out'


def _mixed_units(schedule: ScheduleSettings) -> Iterator[str]:
    """Yield a time with a unit beside one without: nobody could say how they compare."""
    times = {"stay": schedule.stay, "away": schedule.away}
    if schedule.cut == "interval":
        times["interval"] = schedule.interval or USUAL_INTERVAL
    if schedule.round_time is not None:
        times["round_time"] = schedule.round_time
    texts = [key for key, value in times.items() if isinstance(value, str)]
    numbers = [key for key, value in times.items() if not isinstance(value, str)]
    if texts and numbers:
        yield (
            f'schedule.{texts[0]} = "{times[texts[0]]}" has a unit and schedule.{numbers[0]} = '
            f"{times[numbers[0]]:g} has none: give all times of a random schedule a unit "
            f"({', '.join(times)}), or none of them"
        )
