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
from ebbflow.data.trace import TraceEvent
from ebbflow.data.trace_files import read_trace
from tests.data.traces import CHURN, random_trace, trace


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


def test_a_device_or_a_pipe_is_refused_and_not_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (Path("/dev/zero"), tmp_path / "pipe.csv"):
        with pytest.raises(EbbflowError, match="is a device or a pipe; point `schedule"):
            read_trace(path)
