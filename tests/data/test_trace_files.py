"""Traces are read back as written, and broken ones are refused with their place."""

from __future__ import annotations

import csv
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.data.traces.trace import Cut, TraceEvent, from_trace
from ebbflow.data.traces.trace_files import Trace, TraceRules, open_trace, read_trace
from ebbflow.data.traces.trace_oddities import MENDED, WHAT
from tests.data.traces import CHURN, plain, random_trace, trace

MEND = TraceRules(odd="mend")


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
    events = random_trace((seed,), CHURN, horizon=5.0)
    assert read_trace(write(tmp_path / "t.csv", events)) == events
    assert read_trace(write(tmp_path / "t.jsonl", events)) == events
    assert read_trace(write(tmp_path / "t.ndjson", events)) == events


def test_events_are_sorted_by_time_and_ties_keep_their_order(tmp_path: Path) -> None:
    events = trace("5-a 0+a 1+z 1+b 1-z 1+c")
    assert read_trace(write(tmp_path / "t.csv", events)) == trace("0+a 1+z 1+b 1-z 1+c 5-a")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_timestamps_become_seconds_and_a_missing_zone_is_utc(tmp_path: Path, name: str) -> None:
    start = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()
    for times in (
        ["2024-05-01T12:00:00Z", "2024-05-01T12:00:01.5+00:00", "2024-05-01T12:00:02Z"],
        ["2024-05-01T12:00:00", "2024-05-01T12:00:01.5", "2024-05-01 12:00:02"],
        ["2024-05-01T14:00:00+02:00", "2024-05-01T14:00:01.5+02:00", "2024-05-01T14:00:02+02:00"],
    ):
        read = open_trace(write(tmp_path / name, trace("0+a 1+b 2-a"), times))
        assert [event.time - start for event in read.events] == [0.0, 1.5, 2.0]
        assert (read.unit, read.stamped, read.dated, read.oddities) == (1.0, True, True, ())


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_mixed_zones_are_odd_and_count_as_they_say(tmp_path: Path, name: str) -> None:
    times = ["2024-05-01T12:00:00Z", "2024-05-01T12:00:01.5", "2024-05-01T14:00:02+02:00", 5]
    path = write(tmp_path / name, trace("0+a 1+b 2-a 5-b"), times)
    with pytest.raises(EbbflowError, match=r"bare number where others.*`schedule.odd` to \"mend"):
        read_trace(path)
    read = open_trace(path, MEND)
    start = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()
    # The bare number is 5 seconds after the beginning of 1970, where b was present.
    assert [event.time - start for event in read.events] == [5 - start, 5 - start, 0.0, 1.5, 2.0]
    assert {oddity.kind for oddity in read.oddities} == {"number", "no zone", "zones", "no join"}


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
        ("t.csv", CSV + "0,a,enter\n", r"line 2: the event 'enter' is unknown; write 'join'"),
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


def test_a_device_or_a_pipe_is_refused_and_not_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (Path("/dev/zero"), tmp_path / "pipe.csv"):
        with pytest.raises(EbbflowError, match="is a device or a pipe; point `schedule"):
            read_trace(path)


# --- forms, words and columns --------------------------------------------------------------------


def stays_of(events: list[TraceEvent]) -> list[tuple[str, float, float | None]]:
    """Return the stays of a consistent trace, in order of their starts."""
    stays: list[list[Any]] = []
    present: dict[str, list[Any]] = {}
    for event in events:
        if event.joins:
            present[event.device] = [event.device, event.time, None]
            stays.append(present[event.device])
        else:
            present.pop(event.device)[2] = event.time
    return [(device, start, end) for device, start, end in stays]


def write_stays(path: Path, stays: list[tuple[str, float, float | None]]) -> Path:
    """Write stays as CSV or JSON Lines, by the path's suffix."""
    if path.suffix == ".csv":
        lines = [
            f"{device},{start!r},{'' if end is None else repr(end)}" for device, start, end in stays
        ]
        path.write_text("\n".join(["device,start,end", *lines]), encoding="utf-8")
    else:
        rows = [dict(zip(("device", "start", "end"), stay, strict=True)) for stay in stays]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


CUTS = [Cut("interval", interval=0.7), Cut("change", change=0.3)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(seed=st.integers(0, 1000))
def test_events_and_stays_give_the_same_roster(tmp_path: Path, seed: int) -> None:
    events = random_trace((seed,), CHURN, horizon=6.0)
    for name in ("t.csv", "t.jsonl"):
        read = read_trace(write_stays(tmp_path / name, stays_of(events)))
        assert read == events
        for cut in CUTS:
            assert plain(from_trace(read, cut)) == plain(from_trace(events, cut))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9))
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_stays_can_be_mended(
    tmp_path: Path, stays: list[tuple[str, float, float | None]]
) -> None:
    path = write_stays(tmp_path / "t.jsonl", stays)
    kept = [(d, start, end) for d, start, end in stays if end is None or start <= end]
    if not kept:
        with pytest.raises(EbbflowError, match="holds no event"):
            open_trace(path, MEND)
        return
    read = open_trace(path, MEND)
    for time in (moment / 2 for moment in range(19)):
        expected = {d for d, start, end in kept if start <= time and (end is None or time < end)}
        assert _present(read, time) == expected


def _present(read: Trace, time: float) -> set[str]:
    present: set[str] = set()
    for event in read.events:
        if event.time <= time:
            (present.add if event.joins else present.discard)(event.device)
    return present


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12
    )
)
def test_any_events_can_be_mended(tmp_path: Path, rows: list[tuple[int, str, bool]]) -> None:
    path = write(tmp_path / "t.csv", [TraceEvent(time, device, j) for time, device, j in rows])
    mended = open_trace(path, MEND)
    odd = sum(len(oddity.places) for oddity in mended.oddities)
    added = sum(len(oddity.places) for oddity in mended.oddities if oddity.kind == "no join")
    assert len(mended.events) == len(rows) - odd + 2 * added
    # What is mended is not odd any more, and reads back as it is.
    assert read_trace(write(tmp_path / "again.csv", mended.events)) == mended.events
    if not odd:
        assert read_trace(path) == mended.events


@pytest.mark.parametrize(
    "words",
    [
        ("join", "leave"),
        ("arrive", "depart"),
        ("connect", "disconnect"),
        ("Online", "OFFLINE"),
        ("up", "down"),
        ("in", "out"),
        ("1", "0"),
        (1, 0),
    ],
)
def test_other_words_mean_the_same(tmp_path: Path, words: tuple[Any, Any]) -> None:
    join, leave = words
    path = tmp_path / "t.jsonl"
    rows = [{"time": 1, "device": "a", "event": join}, {"time": 2, "device": "a", "event": leave}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert read_trace(path) == trace("1+a 2-a")


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("who,when,what,time\nx,1,up,99\nx,3,down,99\n", encoding="utf-8")
    rules = TraceRules({"time": "when", "device": "who", "event": "what"})
    assert open_trace(path, rules).events == trace("1+x 3-x")
    path.write_text("who,from,until,time,event\nx,1,3,0,0\ny,2,,0,0\n", encoding="utf-8")
    rules = TraceRules({"device": "who", "start": "from", "end": "until"})
    assert open_trace(path, rules).events == trace("1+x 2+y 3-x")


def test_a_trace_with_the_columns_of_both_forms_is_one_of_events(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,device,event,start,end\n1,a,join,7,8\n", encoding="utf-8")
    assert read_trace(path) == trace("1+a")
    rules = TraceRules({"start": "start"})
    assert open_trace(path, rules).events == trace("7+a 8-a")


def test_a_stay_may_end_when_the_next_begins(tmp_path: Path) -> None:
    path = write_stays(tmp_path / "t.csv", [("a", 3, 5), ("b", 0, 4), ("a", 1, 3), ("a", 5, None)])
    assert read_trace(path) == trace("0+b 1+a 3-a 3+a 4-b 5-a 5+a")


# --- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "unit", "seconds", "dated"),
    [
        ([0, 5], None, None, False),
        ([0, 5], "1h", 3600.0, False),
        ([1_714_560_000, 1_714_560_009], None, 1.0, True),
        ([1_714_560_000_000, 1_714_560_009_000], None, None, False),
        ([1_714_560_000_000, 1_714_560_009_000], "1ms", 0.001, True),
        ([1_714_560_000_000_000, 1_714_560_009_000_000], "1us", 1e-6, True),
        ([5, 1_714_560_009], None, None, False),
    ],
)
def test_the_unit_of_time_is_known_or_told(
    tmp_path: Path, times: list[Any], unit: str | None, seconds: float | None, dated: bool
) -> None:
    path = write(tmp_path / "t.csv", trace("0+a 1-a"), times)
    read = open_trace(path, TraceRules(unit=unit))
    assert (read.unit, read.dated, read.stamped) == (seconds, dated, False)
    assert [event.time for event in read.events] == times


# --- FedScale ------------------------------------------------------------------------------------


def test_fedscales_availability_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client_behave_trace.json"
    clients = {
        "7": {"active": [2, 9], "inactive": [5, 12], "finish_time": 20, "model": "x"},
        "3": {"active": [0], "inactive": [], "duration": 1},
    }
    path.write_text(json.dumps(clients), encoding="utf-8")
    read = open_trace(path)
    assert read.events == trace("0+3 2+7 5-7 9+7 12-7")
    assert (read.unit, read.dated) == (1.0, False)


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    for name, content in (
        ("client_behave_trace", b"\x80\x04K\x01."),
        ("old.pkl", b"(dp0\n."),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(EbbflowError, match=r"is a pickle, which can run code.*json\.dump"):
            read_trace(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", r"is not FedScale's client availability; write it as .*'\.jsonl'"),
        ("{}", r"is not FedScale's"),
        ("{broken", r"is not one JSON document; name .*'\.jsonl'"),
        (JSON * 2, r"is not one JSON document"),
        (JSON, r"client 'time': there is no list 'active'"),
        ('{"a": {"active": [1]}}', r"client 'a': there is no list 'inactive'"),
        ('{"a": {"active": [1, 2], "inactive": []}}', r"'active' has 2 times and 'inactive' 0"),
        ('{"a": {"active": [], "inactive": [2]}}', r"'active' has 0 times and 'inactive' 1"),
        ('{"a": {"active": ["x"], "inactive": [2]}}', r"client 'a': 'x' in 'active' is no time"),
        ('{"a": {"active": [1], "inactive": [true]}}', r"'True' in 'inactive' is no time"),
        ('{"a": {"active": [NaN], "inactive": [2]}}', r"'nan' in 'active' is no time"),
        (f'{{"a": {{"active": [{10**400}], "inactive": [2]}}}}', r"in 'active' is no time"),
        ('{"a": {"active": [], "inactive": []}}', r"holds no stay"),
        ('{"a": {"active": [], "inactive": []}, "a": {}}', r"the key 'a' is there twice"),
        (
            '{"a": {"active": [3], "inactive": [1]}}',
            r"client 'a', stay 1: .*to 1, which is earlier",
        ),
        (
            '{"b": {"active": [0], "inactive": [1]}, "a": {"active": [1, 2], "inactive": [4, 5]}}',
            r"client 'a', stay 2: device 'a' stays from 2, before its earlier stay",
        ),
    ],
)
def test_a_broken_availability_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(EbbflowError, match=sentence) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


# --- what is odd ---------------------------------------------------------------------------------

STAYS = "device,start,end\n"
Z = "2024-05-01T12:00:0"
ODD = {
    "duplicate": ("t.csv", CSV + "0,a,join\n0,a,join\n", "0+a", "line 3"),
    "second join": ("t.csv", CSV + "0,a,join\n1,a,join\n2,a,leave\n", "0+a 2-a", "line 3"),
    "no join": ("t.csv", CSV + "0,a,join\n3,b,leave\n", "0+b 0+a 3-b", "line 3"),
    "second leave": ("t.csv", CSV + "0,a,join\n1,a,leave\n2,a,leave\n", "0+a 1-a", "line 4"),
    "overlap": ("t.csv", STAYS + "a,0,5\na,3,9\nb,1,\n", "0+a 1+b 9-a", "line 3"),
    "backwards": ("t.csv", STAYS + "a,5,3\nb,1,2\n", "1+b 2-b", "line 2"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_odd_stops_or_is_mended_and_told(tmp_path: Path, kind: str) -> None:
    name, content, mended, line = ODD[kind]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(
        EbbflowError, match=f'{line}: .*`schedule.odd` to "mend", where .*{MENDED[kind]}'
    ):
        read_trace(path)
    read = open_trace(path, MEND)
    assert read.events == trace(mended)
    (oddity,) = read.oddities
    assert (oddity.kind, list(oddity.places)) == (kind, [line])
    assert oddity.sentence.startswith(f"1 {WHAT[kind][0]} (the first at {line}: ")


def test_stays_that_are_written_twice_are_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(STAYS + "a,0,5\nb,0,\na,0,5\nb,0,\n", encoding="utf-8")
    with pytest.raises(EbbflowError, match="line 4: device 'a' stays from 0 as an earlier line"):
        read_trace(path)
    read = open_trace(path, MEND)
    assert read.events == trace("0+a 0+b 5-a")
    assert [(o.kind, list(o.places)) for o in read.oddities] == [
        ("duplicate", ["line 4", "line 5"])
    ]


def test_a_device_may_come_and_go_in_one_instant(tmp_path: Path) -> None:
    events = trace("0+a 0-a 0+a")
    read = open_trace(write(tmp_path / "t.csv", events))
    assert (read.events, read.oddities) == (events, ())


@pytest.mark.parametrize(
    ("content", "rules", "sentence"),
    [
        (
            "when,who\n",
            TraceRules(),
            r"'when,who' names neither .*`schedule.columns.device = \"when",
        ),
        (
            CSV + "0,a,join\n",
            TraceRules({"time": "t"}),
            r"does not name 't', 'device' and 'event'; say",
        ),
        (STAYS + ",0,1\n", TraceRules(), r"line 2: '' is no device name"),
        (STAYS + "a,,1\n", TraceRules(), r"line 2: the time '' is neither"),
        (STAYS + "a,0,soon\n", TraceRules(), r"line 2: the time 'soon' is neither"),
        (STAYS + "a,0\n", TraceRules(), r"line 2: 2 fields 'a,0' under a header of 3"),
        ("device,start,end,end\n", TraceRules(), r"must name the column 'end' once"),
        (STAYS + "a,0,-1\n", MEND, r"holds no event"),
        (
            CSV + f"{Z}0Z,a,join\n",
            TraceRules(unit="1h"),
            r'`schedule.unit` is "1h", but .*leave it',
        ),
        (CSV + f"{Z}0Z,a,join\n{Z}1,b,join\n", TraceRules(), r"line 3: .*has no time zone"),
        (CSV + f"{Z}0Z,a,join\n{Z}1+01:00,b,join\n", TraceRules(), r"line 3: .*zone UTC\+01:00"),
        (CSV + "0,a,true\n", TraceRules(), r"line 2: the event 'true' is unknown"),
    ],
)
def test_more_that_is_refused(
    tmp_path: Path, content: str, rules: TraceRules, sentence: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(EbbflowError, match=sentence) as caught:
        open_trace(path, rules)
    assert str(path) in str(caught.value)


def test_keys_of_json_lines_that_are_missing_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for content, sentence in (
        (
            '{"device": "a", "start": 0}',
            r"line 1: the key 'end' is missing from .*give device, sta",
        ),
        (
            '{"device": "a", "start": 0, "end": 1}\n{"device": "a"}',
            r"line 2: the key 'start' is mi",
        ),
        ('{"x": 1}', r"line 1: the key 'time' is missing .*`schedule.columns`"),
        (JSON.replace('"join"', "true"), r"line 1: the event True is unknown"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(EbbflowError, match=sentence):
            read_trace(path)


def test_columns_are_of_no_use_to_fedscales_availability(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"a": {"active": [1], "inactive": [2]}}', encoding="utf-8")
    with pytest.raises(EbbflowError, match=r"which has no columns; leave `schedule.columns` out"):
        open_trace(path, TraceRules({"time": "t"}))
