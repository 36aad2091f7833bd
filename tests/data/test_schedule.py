"""Rosters follow the trace, and the random trace follows its laws."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.data import schedule
from ebbflow.data.schedule import (
    Cut,
    Presence,
    TraceEvent,
    alternating,
    from_trace,
    participants,
    random_roster,
    random_trace,
    read_trace,
)

CHURN: dict[str, Any] = {
    "arrivals": 2.0,
    "stay": 3.0,
    "return_probability": 0.5,
    "away": 1.5,
    "initial": 4,
}


def trace(text: str) -> list[TraceEvent]:
    """Read events such as '0+a 2-b': at time 0 a joins, at 2 b leaves."""
    events = []
    for word in text.split():
        sign = "+" if "+" in word else "-"
        time, device = word.split(sign)
        events.append(TraceEvent(float(time), device, sign == "+"))
    return events


def members(roster: schedule.Roster) -> list[str]:
    """Return each session's devices as a word of their names, in the order of their numbers."""
    return ["".join(roster.names[device] for device in s.devices) for s in roster.sessions]


# The paper's schedule.


def test_alternating_groups_take_turns() -> None:
    roster = alternating(5, 10)
    a, b = Presence(tuple(range(10))), Presence(tuple(range(10, 20)))
    assert roster.sessions == (a, b, a, b, a)
    assert len(set(roster.names)) == 20


@pytest.mark.parametrize(("sessions", "devices"), [(0, 5), (5, 0)])
def test_alternating_needs_a_session_and_a_device(sessions: int, devices: int) -> None:
    with pytest.raises(EbbflowError, match=r"`(schedule.sessions|partition.devices)` is 0"):
        alternating(sessions, devices)


# Reading traces.


def write(path: Path, events: list[TraceEvent], times: list[Any] | None = None) -> Path:
    """Write events as CSV or JSON Lines, by the path's suffix."""
    rows = [
        {"time": time, "device": event.device, "event": "join" if event.joins else "leave"}
        for event, time in zip(events, times or [event.time for event in events], strict=True)
    ]
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["time", "device", "event"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(seed=st.integers(0, 1000))
def test_csv_and_json_lines_read_back_what_was_written(tmp_path: Path, seed: int) -> None:
    events = random_trace((seed,), **CHURN, horizon=5.0)
    assert read_trace(write(tmp_path / "t.csv", events)) == events
    assert read_trace(write(tmp_path / "t.jsonl", events)) == events
    assert read_trace(write(tmp_path / "t.ndjson", events)) == events


def test_events_are_sorted_by_time_and_ties_keep_their_order(tmp_path: Path) -> None:
    events = trace("5-a 0+a 1+z 1+b 1-z 1+c")
    assert read_trace(write(tmp_path / "t.csv", events)) == trace("0+a 1+z 1+b 1-z 1+c 5-a")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_timestamps_become_seconds_and_a_missing_zone_is_utc(tmp_path: Path, name: str) -> None:
    times = ["2024-05-01T12:00:00Z", "2024-05-01T12:00:01.5", "2024-05-01T14:00:02+02:00"]
    read = read_trace(write(tmp_path / name, trace("0+a 1+b 2-a"), times))
    start = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()
    assert [event.time - start for event in read] == [0.0, 1.5, 2.0]


def test_a_byte_order_mark_blank_lines_and_other_columns_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(
        b"\xef\xbb\xbfevent, note, device, time\r\n\r\njoin, x, a, 1\r\n,,,\r\nleave, y, a, 2\r\n"
    )
    assert read_trace(path) == trace("1+a 2-a")
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"time":1,"device":7,"event":"join","note":[]}\r\n\r\n')
    assert read_trace(path) == trace("1+7")


CSV = "time,device,event\n"
JSON = '{"time": 0, "device": "a", "event": "join"}\n'


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "", r"t.csv holds no event.*`schedule.file`"),
        ("t.csv", CSV, r"t.csv holds no event"),
        ("t.jsonl", "\n\n", r"t.jsonl holds no event"),
        ("t.csv", "time,device\n1,a\n", r"line 1: the header 'time,device' .*'event'.*let it"),
        ("t.csv", "time,device,event,time\n", r"line 1: the header .*'time' once"),
        ("t.csv", CSV + "0,a,join\n1,b\n", r"line 3: 2 fields '1,b' under a header of 3"),
        ("t.csv", CSV + "0,a,join\nsoon,b,join\n", r"line 3: the time 'soon'.*write it like"),
        ("t.csv", CSV + "nan,a,join\n", r"line 2: the time 'nan'"),
        ("t.csv", CSV + "2024-13-01,a,join\n", r"line 2: the time '2024-13-01'"),
        ("t.csv", CSV + "0,a,arrive\n", r"line 2: the event 'arrive' is unknown; write 'join'"),
        ("t.csv", CSV + "0,,join\n", r"line 2: '' is no device name"),
        ("t.csv", CSV + "0,a,join\n1,a,join\n", r"line 3: at time 1 device 'a' joins.*add the l"),
        ("t.csv", CSV + "0,a,join\n3,b,leave\n", r"line 3: at time 3 device 'b' leaves.*add the j"),
        ("t.csv", CSV + "9,a,join\n1,a,leave\n", r"line 3: at time 1 device 'a' leaves"),
        ("t.csv", CSV + "0," + "a" * 200_000 + ",join\n", r"line 2: this is not CSV"),
        ("t.jsonl", JSON + "{broken\n", r"line 2: '{broken' is not JSON; write one object"),
        ("t.jsonl", "[" * 100_000, r"line 1: .* is not JSON"),
        ("t.jsonl", JSON + "[1]\n", r"line 2: '\[1\]' is not a JSON object"),
        ("t.jsonl", '{"time": 0, "device": "a"}', r"line 1: the key 'event' is missing"),
        ("t.jsonl", JSON.replace("0", "true"), r"line 1: the time True"),
        ("t.jsonl", JSON.replace("0", "NaN"), r"line 1: the time nan"),
        ("t.jsonl", JSON.replace("0", "1" + "0" * 400), r"line 1: the time 1000"),
        ("t.jsonl", JSON.replace("0", "[]"), r"line 1: the time \[\]"),
        ("t.jsonl", JSON.replace('"a"', "null"), r"line 1: None is no device name"),
        ("t.jsonl", JSON.replace('"a"', "true"), r"line 1: True is no device name"),
        ("t.jsonl", JSON.replace('"join"', "[]"), r"line 1: the event \[\] is unknown"),
        ("t.jsonl", JSON + JSON, r"line 2: at time 0 device 'a' joins"),
        ("t.csv", b"time,device,event\n0,a,join\n1,\xff,join\n", r"line 3: the byte 0xff.*UTF-8"),
    ],
)
def test_a_broken_trace_is_refused_with_its_place(
    tmp_path: Path, name: str, content: str | bytes, sentence: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(EbbflowError, match=sentence) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_unreadable_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"none.csv does not exist; point `schedule.file`"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(EbbflowError, match=r"cannot be read .*`schedule.file`"):
        read_trace(tmp_path)


# Cutting traces.


def test_windows_see_who_is_there_at_their_start() -> None:
    events = trace("10+a 10+b 12+c 13-a 14-c 15+d 20+e")
    roster = from_trace(events, Cut("interval", interval=2.0))
    # Windows at 10, 12, ..., 20; events at a window's start count, e starts the last one.
    assert members(roster) == ["ab", "abc", "b", "bd", "bd", "bde"]
    assert roster.names == ("a", "b", "c", "d", "e")
    assert {session.rounds for session in roster.sessions} == {None}


def test_windows_with_too_few_devices_are_skipped_however_many() -> None:
    events = trace("0+a 0+b 1-a 1e9+a 1000000001-b")
    roster = from_trace(events, Cut("interval", interval=1.0, min_devices=2))
    assert members(roster) == ["ab", "ab"]


@pytest.mark.parametrize("length", [0.1, 0.3, 0.57, 1.1])
def test_an_event_on_a_window_bound_belongs_to_the_window(length: float) -> None:
    # As decimals; in binary i * length can miss the bound on either side.
    events = [TraceEvent(0.0, "x", True)] + [
        TraceEvent(round(i * length, 2), f"d{i}", True) for i in range(1, 200)
    ]
    roster = from_trace(events, Cut("interval", interval=length))
    assert [len(session.devices) for session in roster.sessions] == list(range(1, 201))


def test_change_of_zero_starts_a_session_at_every_change_of_membership() -> None:
    events = trace("0+a 1+b 1+c 2-a 2+a 3-b 3+d 4-c")
    assert members(from_trace(events, Cut("change", change=0.0))) == ["a", "abc", "acd", "ad"]


def test_change_counts_against_the_start_of_the_session() -> None:
    events = trace("0+a 0+b 0+c 0+d 1-a 2+a 3+e 4+f 5-a")
    # Against abcd: one of 3 has changed, none (a is back), one of 5, two of 6, three of 5.
    for fraction, expected in [
        (0.61, ["abcd"]),
        (0.6, ["abcd", "bcdef"]),
        (0.334, ["abcd", "bcdef"]),
        (1 / 3, ["abcd", "bcd", "abcde", "bcdef"]),
    ]:
        assert members(from_trace(events, Cut("change", change=fraction))) == expected


def test_change_waits_until_enough_devices_are_here() -> None:
    events = trace("0+a 1+b 2-a 3-b 4+c 6+d 9-d")
    roster = from_trace(events, Cut("change", change=0.0, min_devices=2), round_time=1.0)
    assert members(roster) == ["ab", "cd"]
    # The first lasts from 1 to 6 and the last from 6 to the last event.
    assert [session.rounds for session in roster.sessions] == [5, 3]


def test_rounds_are_whole_round_times_and_at_least_one() -> None:
    events = trace("0+a 0.3+b 1+c 8+d")
    roster = from_trace(events, Cut("change", change=0.0), round_time=0.1)
    assert [session.rounds for session in roster.sessions] == [3, 7, 70, 1]
    roster = from_trace(events, Cut("change", change=0.0), round_time=5.0)
    assert [session.rounds for session in roster.sessions] == [1, 1, 1, 1]
    roster = from_trace(events, Cut("interval", interval=0.7), round_time=0.1, sessions=2)
    assert [session.rounds for session in roster.sessions] == [7, 7]


def test_a_limit_of_sessions_keeps_the_first_ones_whole() -> None:
    events = trace("0+a 2+b 5+c 9+d")
    cut = Cut("change", change=0.0)
    everything = from_trace(events, cut, round_time=1.0)
    limited = from_trace(events, cut, round_time=1.0, sessions=2)
    assert limited.sessions == everything.sessions[:2]
    assert limited.names == ("a", "b")


def test_the_order_of_events_given_does_not_matter() -> None:
    events = trace("0+a 1+b 3-a 5+c")
    cut = Cut("interval", interval=1.0)
    assert from_trace(events[::-1], cut) == from_trace(events, cut)


@settings(deadline=None)
@given(
    st.integers(0, 10_000),
    st.one_of(
        st.builds(Cut, st.just("interval"), st.floats(0.05, 5), st.none(), st.integers(1, 4)),
        st.builds(Cut, st.just("change"), st.none(), st.floats(0, 2), st.integers(1, 4)),
    ),
)
def test_every_session_is_a_moment_of_the_trace(seed: int, cut: Cut) -> None:
    events = random_trace((seed,), **CHURN, horizon=20.0)
    moments: set[frozenset[str]] = set()
    present: set[str] = set()
    for event in events:
        (present.add if event.joins else present.remove)(event.device)
        moments.add(frozenset(present))
    roster = from_trace(events, cut)
    assert len(set(roster.names)) == len(roster.names)
    for session in roster.sessions:
        assert list(session.devices) == sorted(set(session.devices))
        assert len(session.devices) >= cut.min_devices
        assert frozenset(roster.names[device] for device in session.devices) in moments
    if cut.rule == "change":
        for before, after in zip(roster.sessions, roster.sessions[1:], strict=False):
            changed = set(before.devices) ^ set(after.devices)
            assert changed
            assert cut.change is not None
            assert len(changed) >= cut.change * len(after.devices) - 1e-5


def test_too_few_sessions_are_refused_with_their_number() -> None:
    events = trace("0+a 1+b")
    by_change, by_time = Cut("change", change=0.0), Cut("interval", interval=1.0)
    assert len(from_trace(events, by_change, sessions=2).sessions) == 2
    with pytest.raises(EbbflowError, match=r"yields 2 sessions where 3 .*`schedule.change`"):
        from_trace(events, by_change, sessions=3)
    with pytest.raises(EbbflowError, match=r"yields 2 sessions where 3 .*`schedule.interval`"):
        from_trace(events, by_time, sessions=3)
    with pytest.raises(EbbflowError, match=r"yields 0 sessions where at least one.*\(now 3\)"):
        from_trace(events, by_time._replace(min_devices=3))
    with pytest.raises(EbbflowError, match="yields 0 sessions"):
        from_trace([], by_change)


def test_more_sessions_than_anyone_means_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SESSION_LIMIT", 10)
    cut = Cut("interval", interval=1.0)
    assert len(from_trace(trace("0+a 9-a 9+a"), cut).sessions) == 10
    with pytest.raises(EbbflowError, match=r"more than 10 sessions; set `schedule.sessions`"):
        from_trace(trace("0+a 1e9-a"), cut)


@pytest.mark.parametrize(
    ("cut", "asked", "sentence"),
    [
        (Cut("interval"), {}, "`schedule.interval` is missing; set it"),
        (Cut("interval", interval=0.0), {}, "`schedule.interval` is 0.0; give"),
        (Cut("interval", interval=math.inf), {}, "`schedule.interval` is inf"),
        (Cut("change"), {}, "`schedule.change` is missing; set it"),
        (Cut("change", change=-0.1), {}, "`schedule.change` is -0.1; give"),
        (Cut("change", change=math.nan), {}, "`schedule.change` is nan"),
        (Cut("change", change=0.0, min_devices=0), {}, "`schedule.min_devices` is 0; set"),
        (Cut("weekly"), {}, "`schedule.cut` is 'weekly'; set"),  # type: ignore[arg-type]
        (Cut("change", change=0.0), {"sessions": 0}, "`schedule.sessions` is 0"),
        (Cut("change", change=0.0), {"round_time": 0.0}, "`schedule.round_time` is 0.0"),
    ],
)
def test_a_bad_cut_is_refused(cut: Cut, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        from_trace(trace("0+a 1+b"), cut, **asked)


# Random traces.


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 20), st.floats(0.5, 20))
def test_a_longer_horizon_only_adds_to_the_end(seed: int, one: float, two: float) -> None:
    short, longer = (
        random_trace((seed, "schedule"), **CHURN, horizon=h) for h in sorted((one, two))
    )
    assert longer[: len(short)] == short
    assert all(event.time > min(one, two) for event in longer[len(short) :])


def test_a_random_trace_is_in_order_and_consistent() -> None:
    events = random_trace((1,), **CHURN, horizon=50.0)
    assert [e.time for e in events] == sorted(e.time for e in events)
    assert events[:4] == trace("0+d0 0+d1 0+d2 0+d3")
    present: set[str] = set()
    for event in events:
        assert event.joins != (event.device in present)
        (present.add if event.joins else present.remove)(event.device)
    # Names follow the order of first arrival.
    firsts = list(dict.fromkeys(event.device for event in events))
    assert firsts == [f"d{number}" for number in range(len(firsts))]
    assert events == random_trace((1,), **CHURN, horizon=50.0)
    assert events != random_trace((2,), **CHURN, horizon=50.0)


def lives(events: list[TraceEvent]) -> dict[str, list[float]]:
    """Return each device's times, counted from its first join."""
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.device, []).append(event.time)
    return {device: [t - ts[0] for t in ts] for device, ts in times.items()}


def test_the_rate_of_arrivals_leaves_the_lives_of_devices_alone() -> None:
    slow = lives(random_trace((5,), **CHURN, horizon=400.0))
    fast = lives(random_trace((5,), **{**CHURN, "arrivals": 4.0}, horizon=400.0))
    for number in range(50):
        device = f"d{number}"
        assert slow[device] == pytest.approx(fast[device])


def test_arrivals_are_poisson_and_the_number_present_obeys_littles_law() -> None:
    # New devices: Poisson(arrivals * horizon). In the steady state the number present is
    # Poisson too, with mean arrivals * stay / (1 - p): each device stays 1 / (1 - p) times.
    arrivals, stay, back, horizon, runs = 4.0, 2.0, 0.5, 60.0, 200
    new, present = [], []
    for seed in range(runs):
        events = random_trace(
            (seed,),
            arrivals=arrivals,
            stay=stay,
            return_probability=back,
            away=3.0,
            horizon=horizon,
        )
        new.append(len({event.device for event in events}))
        present.append(sum(1 if event.joins else -1 for event in events))
    for counts, mean in [(new, arrivals * horizon), (present, arrivals * stay / (1 - back))]:
        assert np.mean(counts) == pytest.approx(mean, abs=3 * math.sqrt(mean / runs))
        # The variance of a Poisson count is its mean; 3 sigma of its estimate are about 30 %.
        assert np.var(counts) == pytest.approx(mean, rel=0.31)


def test_stays_and_times_away_have_their_means() -> None:
    events = random_trace(
        (9,),
        arrivals=0.0,
        stay=2.0,
        return_probability=1.0,
        away=5.0,
        horizon=700.0,
        initial=100,
    )
    stays, aways = [], []
    for times in lives(events).values():
        gaps = np.diff(times)
        stays += gaps[0::2].tolist()
        aways += gaps[1::2].tolist()
    for lengths, mean in [(stays, 2.0), (aways, 5.0)]:
        assert np.mean(lengths) == pytest.approx(mean, abs=4 * mean / math.sqrt(len(lengths)))


def test_without_return_every_device_comes_and_goes_once() -> None:
    events = random_trace((0,), **{**CHURN, "return_probability": 0.0}, horizon=100.0)
    assert max(Counter(event.device for event in events).values()) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arrivals", -1.0),
        ("arrivals", math.nan),
        ("stay", 0.0),
        ("stay", math.inf),
        ("return_probability", -0.1),
        ("return_probability", 1.1),
        ("return_probability", math.nan),
        ("away", 0.0),
        ("initial", -1),
        ("horizon", 0.0),
        ("horizon", math.inf),
    ],
)
def test_bad_settings_of_the_random_trace_are_refused(key: str, value: float) -> None:
    with pytest.raises(EbbflowError, match=rf"`schedule.{key}` is {value}\b.*(give|set)"):
        random_trace((0,), **{**CHURN, "horizon": 5.0, key: value})


def test_a_process_without_any_device_is_refused() -> None:
    with pytest.raises(EbbflowError, match=r"`schedule.arrivals` and `schedule.initial` .* raise"):
        random_trace((0,), **{**CHURN, "arrivals": 0.0, "initial": 0}, horizon=5.0)


# Random rosters.


@pytest.mark.parametrize(
    "cut",
    [Cut("interval", interval=0.7, min_devices=3), Cut("change", change=0.4, min_devices=3)],
    ids=["interval", "change"],
)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), fewer=st.integers(1, 8), more=st.integers(0, 8))
def test_more_sessions_leave_the_earlier_ones_alone(
    cut: Cut, seed: int, fewer: int, more: int
) -> None:
    short, longer = (
        random_roster((seed,), sessions=sessions, cut=cut, round_time=0.1, **CHURN)
        for sessions in (fewer, fewer + more)
    )
    assert len(longer.sessions) == fewer + more
    assert longer.sessions[:fewer] == short.sessions
    assert longer.names[: len(short.names)] == short.names


@pytest.mark.parametrize("rule", ["interval", "change"])
def test_a_random_roster_is_the_cut_of_the_random_trace(rule: Any) -> None:
    cut = Cut(rule, interval=1.0, change=0.3)
    roster = random_roster((3,), sessions=8, cut=cut, round_time=0.25, **CHURN)
    events = random_trace((3,), **CHURN, horizon=100.0)
    assert from_trace(events, cut, sessions=8, round_time=0.25) == roster


def test_a_process_that_dies_out_or_never_suffices_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = Cut("change", change=0.0)
    dying: dict[str, Any] = {**CHURN, "arrivals": 0.0, "return_probability": 0.0}
    # Four devices leave one by one; with none there is no session.
    assert len(random_roster((0,), sessions=4, cut=cut, **dying).sessions) == 4
    with pytest.raises(EbbflowError, match=r"yields 4 of 5 sessions.*raise `schedule.arrivals`"):
        random_roster((0,), sessions=5, cut=cut, **dying)
    monkeypatch.setattr(schedule, "EVENT_LIMIT", 2000)
    with pytest.raises(EbbflowError, match=r"yields 0 of 1 .*2,000 .*min_devices` \(now 10000\)"):
        random_roster((0,), sessions=1, cut=cut._replace(min_devices=10_000), **CHURN)


# Participation.


@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 50), min_size=1, max_size=30),
    st.one_of(st.none(), st.integers(1, 40), st.floats(0.001, 1.0)),
    st.sampled_from(["uniform", "weighted"]),
)
def test_participants_are_devices_in_order_without_repetition(
    seed: int, sizes: list[int], share: float | int | None, weighting: Any
) -> None:
    devices = tuple(range(100, 100 + 3 * len(sizes), 3))
    chosen, again = (
        participants(np.random.default_rng(seed), devices, sizes, share, weighting)
        for _ in range(2)
    )
    assert chosen == again
    assert chosen == tuple(device for device in devices if device in chosen)
    if share is None:
        assert chosen == devices
    elif isinstance(share, int):
        assert len(chosen) == min(share, len(devices))
    else:
        assert abs(len(chosen) - share * len(devices)) <= 0.5 + 1e-5 or len(chosen) == 1


@pytest.mark.parametrize(
    ("present", "share", "count"),
    [(10, 0.25, 3), (10, 0.24, 2), (10, 0.01, 1), (100, 0.145, 15), (7, 1.0, 7), (7, 1, 1)],
)
def test_fractions_round_halves_up_and_whole_numbers_count(
    present: int, share: float, count: int
) -> None:
    devices = range(present)
    assert len(participants(np.random.default_rng(0), devices, devices, share, "uniform")) == count


def test_the_draw_follows_the_weighting() -> None:
    rng, runs = np.random.default_rng(0), 4000
    sizes = (1, 2, 7)
    for weighting, first, both in [
        ("uniform", (1 / 3, 1 / 3, 1 / 3), (2 / 3, 2 / 3, 2 / 3)),
        # Two of three: 1 - P(the device comes last), summed over the orders of the draw.
        (
            "weighted",
            (0.1, 0.2, 0.7),
            (
                1 - (0.2 * 7 / 8 + 0.7 * 2 / 3),
                1 - (0.1 * 7 / 9 + 0.7 * 1 / 3),
                1 - (0.1 * 2 / 9 + 0.2 * 1 / 8),
            ),
        ),
    ]:
        for count, expected in [(1, first), (2, both)]:
            drawn = Counter(
                device
                for _ in range(runs)
                for device in participants(rng, (0, 1, 2), sizes, count, weighting)  # type: ignore[arg-type]
            )
            for device, p in enumerate(expected):
                assert drawn[device] / runs == pytest.approx(
                    p, abs=4 * math.sqrt(p * (1 - p) / runs)
                )


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, math.nan, 0, -2])
def test_a_bad_share_is_refused(share: float) -> None:
    with pytest.raises(EbbflowError, match=rf"`participation.share` is {share}; (give|set)"):
        participants(np.random.default_rng(), (1, 2), (5, 5), share, "uniform")


def test_an_empty_session_an_empty_device_and_an_unknown_weighting_are_refused() -> None:
    rng = np.random.default_rng()
    with pytest.raises(EbbflowError, match="No device is present"):
        participants(rng, (), (), None, "uniform")
    with pytest.raises(EbbflowError, match=r"Device 2 holds 0 samples.*'uniform'"):
        participants(rng, (1, 2), (5, 0), 1, "weighted")
    with pytest.raises(EbbflowError, match=r"`participation.weighting` is 'loud'; set it"):
        participants(rng, (1, 2), (5, 5), 1, "loud")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 devices but 1 sizes"):
        participants(rng, (1, 2), (5,), 1, "uniform")
