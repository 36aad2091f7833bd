"""Times of a schedule: kept as they were written, and numbers where they are used."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w

from ebbflow.config.merge import Layers
from ebbflow.config.resolve import resolve
from ebbflow.config.resolved import Config
from ebbflow.config.schedules import (
    random_times,
    scheduled_trace,
    trace_times,
    trace_warnings,
)
from ebbflow.config.schema import ScheduleSettings
from ebbflow.core.errors import EbbflowError

STAMPS = "time,device,event\n2024-05-01T00:00:00Z,a,join\n2024-05-03T00:00:00Z,b,join\n"
NUMBERS = "time,device,event\n0,a,join\n5,b,join\n"
EPOCHS = "time,device,event\n1714560000,a,join\n1714560005,b,join\n"
MILLISECONDS = "time,device,event\n1714560000000,a,join\n1714560005000,b,join\n"


def config_of(*settings: str) -> Config:
    layers = Layers()
    for setting in settings:
        layers.add_setting(setting)
    return layers.config()


def trace_of(tmp_path: Path, content: str, *settings: str) -> ScheduleSettings:
    path = tmp_path / "trace.csv"
    path.write_text(content, encoding="utf-8")
    return config_of("schedule.kind=trace", f"schedule.file={path}", *settings).schedule


@pytest.mark.parametrize(
    "settings",
    [
        ("schedule.kind=trace", "schedule.file=a.csv", "schedule.interval=1d"),
        ("schedule.kind=trace", "schedule.file=a.csv", "schedule.interval=1.0"),
        ("schedule.kind=trace", "schedule.file=a.csv"),
        (
            "schedule.kind=trace",
            "schedule.file=a.csv",
            "schedule.columns.time=when",
            "schedule.unit=1h",
            "schedule.odd=mend",
            "schedule.round_time=2h30m",
        ),
        (
            "schedule.kind=random",
            "schedule.interval=1d",
            "schedule.stay=8h",
            "schedule.away=1.5d",
        ),
    ],
)
def test_what_was_written_survives(settings: tuple[str, ...]) -> None:
    config = config_of(*settings)
    assert Config.model_validate(json.loads(config.model_dump_json())) == config
    assert resolve(config) == config
    text = tomli_w.dumps(config.model_dump(exclude_none=True))
    again = Layers()
    again.add(tomllib.loads(text), "config.toml")
    assert again.config() == config
    for setting in settings:
        _, value = setting.split("=")
        assert value in text


@pytest.mark.parametrize(
    ("content", "settings", "interval", "round_time"),
    [
        (NUMBERS, [], 1.0, None),
        (NUMBERS, ["schedule.interval=2.5", "schedule.round_time=0.5"], 2.5, 0.5),
        (NUMBERS, ["schedule.interval=1d", "schedule.unit=1h"], 24.0, None),
        (NUMBERS, ["schedule.interval=2", "schedule.unit=1h", "schedule.round_time=30m"], 2, 0.5),
        (STAMPS, ["schedule.interval=1d", "schedule.round_time=90s"], 86_400.0, 90.0),
        (STAMPS, ["schedule.interval=1d", "schedule.unit=1s"], 86_400.0, None),
        (STAMPS, ["schedule.interval=1.0"], 1.0, None),
        (EPOCHS, ["schedule.interval=2s"], 2.0, None),
        (EPOCHS, [], 1.0, None),
        (MILLISECONDS, ["schedule.interval=2s", "schedule.unit=1ms"], 2000.0, None),
    ],
)
def test_times_are_in_the_traces_unit(
    tmp_path: Path,
    content: str,
    settings: list[str],
    interval: float,
    round_time: float | None,
) -> None:
    choice = trace_of(tmp_path, content, *settings)
    times = trace_times(choice, scheduled_trace(choice))
    assert times.cut.interval == pytest.approx(interval)
    assert times.round_time == round_time


def test_a_cut_by_change_needs_no_interval(tmp_path: Path) -> None:
    choice = trace_of(tmp_path, STAMPS, "schedule.cut=change")
    assert trace_times(choice, scheduled_trace(choice)).cut.interval is None


@pytest.mark.parametrize(("text", "share"), [((), 0.3), (("schedule.newcomers=0.8",), 0.8)])
def test_a_cut_by_newcomers_has_its_share(
    tmp_path: Path, text: tuple[str, ...], share: float
) -> None:
    choice = trace_of(tmp_path, STAMPS, "schedule.cut=newcomers", *text)
    of_trace = trace_times(choice, scheduled_trace(choice)).cut
    random = config_of("schedule.kind=random", "schedule.cut=newcomers", *text).schedule
    for cut in (of_trace, random_times(random).cut):
        assert (cut.rule, cut.newcomers) == ("newcomers", share)


def test_a_random_schedule_counts_seconds_if_it_has_units() -> None:
    plain = random_times(config_of("schedule.kind=random", "schedule.round_time=0.5").schedule)
    assert (plain.cut.interval, plain.round_time, plain.stay, plain.away) == (1.0, 0.5, 2.0, 2.0)
    settings = ("schedule.interval=1d", "schedule.stay=8h", "schedule.away=90m")
    times = random_times(config_of("schedule.kind=random", *settings).schedule)
    assert (times.cut.interval, times.stay, times.away) == (86_400.0, 28_800.0, 5_400.0)
    config_of("schedule.kind=random", "schedule.cut=change", *settings[1:])


RANDOM = ["schedule.kind=random"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([*RANDOM, "schedule.interval=1d"], r'interval = "1d" has a unit and schedule\.stay = 2 '),
        ([*RANDOM, "schedule.stay=8h", "schedule.away=8h"], r"schedule\.interval = 1 has none"),
        (
            [*RANDOM, "schedule.cut=change", "schedule.stay=8h", "schedule.away=2.5"],
            r"schedule\.away = 2\.5 has none: give all times",
        ),
        (
            [*RANDOM, "schedule.round_time=90s"],
            r'schedule\.round_time = "90s" has a unit and schedule\.stay = 2 has none',
        ),
        (["schedule.unit=1h"], r'schedule\.unit = "1h" is only read with schedule\.kind = "trace"'),
        ([*RANDOM, "schedule.odd=mend"], r'schedule\.odd = "mend" is only read with'),
        (["schedule.columns.time=t"], r'schedule\.columns\.time = "t" is only read with'),
        (
            [
                "schedule.kind=trace",
                "schedule.file=a",
                "schedule.columns.event=e",
                "schedule.columns.end=z",
            ],
            r"schedule\.columns\.event belongs .* and schedule\.columns\.end to one of stays",
        ),
        (["schedule.columns.tim=t"], r"unknown key schedule\.columns\.tim.*columns\.time\?"),
        (["schedule.columns.time=''"], r"schedule\.columns\.time .* at least 1 character"),
        (["schedule.columns=3"], r"schedule\.columns = 3 .* is refused"),
        (["schedule.unit=3600"], r'a unit of time is a duration such as "1s"'),
        (["schedule.unit=1 fortnight"], r"unknown unit 'fortnight'"),
        (["schedule.interval=true"], r"give a number in the schedule's unit of time, or write"),
        (["schedule.interval=-1"], r"finite and greater than 0"),
        (["schedule.stay=nan"], r"finite and greater than 0"),
        ([f"schedule.away={'9' * 400}"], r"finite and greater than 0"),
        (["schedule.round_time=0h"], r"'0h' is no time at all"),
        (["schedule.odd=ignore"], r"schedule\.odd .* 'stop' or 'mend'"),
    ],
)
def test_what_contradicts_itself_is_refused(settings: list[str], sentence: str) -> None:
    with pytest.raises(EbbflowError, match=sentence) as caught:
        config_of(*settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        (STAMPS, [], r"has timestamps, and without `schedule\.interval` .*such as \"1d\""),
        (NUMBERS, ["schedule.interval=1d"], r'is "1d", but nothing says .*`schedule\.unit`.*"1s"'),
        (NUMBERS, ["schedule.round_time=9s"], r'`schedule\.round_time` is "9s", but nothing says'),
        (MILLISECONDS, ["schedule.interval=1d"], r'`schedule\.unit` to what 1 .*such as "1ms"'),
        (STAMPS, ["schedule.unit=1h"], r'`schedule\.unit` is "1h", but .* has timestamps'),
    ],
)
def test_times_that_do_not_fit_the_trace_are_refused(
    tmp_path: Path, content: str, settings: list[str], sentence: str
) -> None:
    choice = trace_of(tmp_path, content, *settings)
    with pytest.raises(EbbflowError, match=sentence) as caught:
        trace_times(choice, scheduled_trace(choice))
    assert "trace.csv" in str(caught.value)


def test_what_was_mended_is_told_once_for_each_kind(tmp_path: Path) -> None:
    odd = NUMBERS + "6,a,join\n7,b,join\n8,c,leave\n"
    choice = trace_of(tmp_path, odd, "schedule.odd=mend")
    joins, leave = trace_warnings(choice)
    assert "trace.csv has 2 joins of devices that are present (the first at line 4: " in joins
    assert joins.endswith("present already): a second join is left out.")
    assert "1 leave without a join (the first at line 6: " in leave
    assert trace_warnings(trace_of(tmp_path, NUMBERS, "schedule.odd=mend")) == ()
    assert trace_warnings(trace_of(tmp_path, odd)) == ()  # a run stops at the first
    assert trace_warnings(config_of().schedule) == ()
