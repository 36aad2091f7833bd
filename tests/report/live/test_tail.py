"""A file that grows is read line by line, however its bytes arrive and whatever happens to it."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.report.live.tail import SEAM, LineTail, NewLines, RunTail
from ebbflow.runs import records
from ebbflow.runs.schemas import Event, RoundLine
from tests.report.live.lines import finished_line, round_line, warning_line

NOTHING_NEW = NewLines(False, [])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / records.METRICS


def tail_of(path: Path) -> LineTail:
    return LineTail(path, RoundLine)


def numbers(new: NewLines) -> list[int]:
    return [line["round"] for line in new.objects]


def grown(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


# --- growing -------------------------------------------------------------------------------------


@given(
    texts=st.lists(st.text(max_size=2 * SEAM), max_size=8),
    cuts=st.lists(st.integers(0, 20_000), max_size=12),
)
def test_any_cutting_of_the_bytes_gives_the_same_lines(texts: list[str], cuts: list[int]) -> None:
    content = b"".join(map(warning_line, texts))
    places = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / records.EVENTS
        tail, seen = LineTail(path, Event), list[str]()
        for begin, end in itertools.pairwise(places):
            grown(path, content[begin:end])
            new = tail.read()
            assert not new.anew and new.trouble == ""
            seen += [line["text"] for line in new.objects]
            assert len(seen) == content[:end].count(b"\n")
        assert seen == texts
        assert tail.read() == NOTHING_NEW


def test_a_file_that_is_not_there_yet_says_nothing(path: Path) -> None:
    tail = tail_of(path)
    assert tail.read() == NOTHING_NEW
    grown(path, round_line(1))
    assert numbers(tail.read()) == [1]


def test_a_half_written_line_waits_for_its_end(path: Path) -> None:
    tail, line = tail_of(path), round_line(2)
    grown(path, round_line(1), line[:-1])
    assert numbers(tail.read()) == [1]
    grown(path, line[-1:])
    assert numbers(tail.read()) == [2]


def test_what_is_read_is_what_a_reader_of_the_whole_file_gets(path: Path) -> None:
    grown(path, *(round_line(n, accuracy=n / 7) for n in range(1, 50)))
    assert tail_of(path).read().objects == list(records.read_lines(path))


def test_lines_without_checksums_are_of_an_earlier_version(path: Path) -> None:
    old = [records.split_line(round_line(n))[0].decode() for n in (1, 2)]
    tail = tail_of(path)
    for number, line in enumerate(old, start=1):
        grown(path, f"{line}\n".encode())
        assert numbers(tail.read()) == [number]


# --- cut, replaced, gone -------------------------------------------------------------------------


def test_a_file_that_was_cut_is_read_again(path: Path) -> None:
    tail = tail_of(path)
    grown(path, round_line(1), round_line(2), round_line(3))
    tail.read()
    os.truncate(path, len(round_line(1)))
    new = tail.read()
    assert new.anew
    assert numbers(new) == [1]
    grown(path, round_line(2))
    assert numbers(tail.read()) == [2]


def test_a_file_that_was_cut_and_has_grown_to_another_content_is_read_again(path: Path) -> None:
    tail = LineTail(path, Event)
    grown(path, finished_line(1, 1.25), finished_line(2, 1.5))
    tail.read()
    os.truncate(path, 0)
    grown(path, finished_line(1, 11.25), finished_line(2, 0.5), finished_line(3, 0.25))
    new = tail.read()
    assert new.anew
    assert [line["seconds"] for line in new.objects] == [11.25, 0.5, 0.25]


def test_a_file_that_was_cut_and_has_the_same_rounds_again_goes_on(path: Path) -> None:
    tail = tail_of(path)
    grown(path, round_line(1), round_line(2))
    tail.read()
    os.truncate(path, len(round_line(1)))
    grown(path, round_line(2), round_line(3))
    new = tail.read()
    assert not new.anew
    assert numbers(new) == [3]


def test_another_file_of_that_name_is_read_from_its_beginning(path: Path) -> None:
    tail, other = tail_of(path), path.with_suffix(".new")
    grown(path, round_line(1))
    tail.read()
    shutil.copy(path, other)
    other.replace(path)
    new = tail.read()
    assert new.anew
    assert numbers(new) == [1]


def test_a_file_that_vanished_is_forgotten(path: Path) -> None:
    tail = tail_of(path)
    grown(path, round_line(1))
    tail.read()
    path.unlink()
    assert tail.read() == NewLines(True, [])
    assert tail.read() == NOTHING_NEW
    grown(path, round_line(1))
    assert numbers(tail.read()) == [1]


# --- damaged, or no file at all ------------------------------------------------------------------


def test_a_damaged_line_is_a_sentence_until_it_is_whole(path: Path) -> None:
    tail, line = tail_of(path), bytearray(round_line(2))
    line[30] ^= 1
    grown(path, round_line(1), bytes(line), round_line(3))
    new = tail.read()
    assert numbers(new) == [1]
    assert f"{path}, line 2 does not match its checksum" in new.trouble
    assert tail.read() == NewLines(False, [], new.trouble)
    os.truncate(path, len(round_line(1)))
    grown(path, round_line(2))
    mended = tail.read()
    assert (mended.trouble, numbers(mended)) == ("", [2])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (round_line(1, lr="high"), "lr"),
        (round_line(0), "round"),
        (records.line_of({"a": 1}), "refused"),
        (b"[1, 2]\n", "no JSON object"),
        (b"\xff\xfe\n", "no JSON object"),
        (b"\n", "no JSON object"),
        (b"[" * 100_000 + b"\n", "no JSON object"),
    ],
)
def test_a_line_that_no_run_writes_is_a_sentence(path: Path, line: bytes, told: str) -> None:
    grown(path, line)
    new = tail_of(path).read()
    assert new.objects == []
    assert told in new.trouble


@given(content=st.binary(max_size=400))
def test_no_bytes_are_a_crash(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / records.METRICS
        path.write_bytes(content)
        tail = tail_of(path)
        assert tail.read().objects == []
        assert bool(tail.read().trouble) == (b"\n" in content)


def test_a_line_without_an_end_is_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebbflow.report.live.tail.LONGEST_LINE", 100)
    grown(path, b"x" * 200)
    assert "longer than any line" in tail_of(path).read().trouble


def test_what_is_no_plain_file_is_not_waited_for(path: Path, tmp_path: Path) -> None:
    os.mkfifo(path)
    assert "is no plain file" in tail_of(path).read().trouble
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(round_line(1))
    path.symlink_to(tmp_path / "elsewhere")
    assert "cannot be read" in tail_of(path).read().trouble
    path.unlink()
    path.mkdir()
    assert tail_of(path).read().trouble


# --- a run's two files ---------------------------------------------------------------------------


def test_a_run_is_read_again_if_one_of_its_files_was_cut(tmp_path: Path) -> None:
    metrics, events = tmp_path / records.METRICS, tmp_path / records.EVENTS
    tail = RunTail(tmp_path)
    grown(metrics, round_line(1), round_line(2))
    grown(events, finished_line(1, 1.5))
    new = tail.read()
    assert not new.anew
    assert [r.round for r in tail.rounds] == [1, 2]
    os.truncate(events, 0)
    grown(events, finished_line(1, 2.25))
    new = tail.read()
    assert new.anew
    assert [r.round for r in new.rounds] == [r.round for r in tail.rounds] == [1, 2]
    assert [e["seconds"] for e in tail.events] == [2.25]


def test_the_trouble_of_either_file_is_told(tmp_path: Path) -> None:
    tail = RunTail(tmp_path)
    grown(tmp_path / records.EVENTS, b"?\n")
    tail.read()
    assert records.EVENTS in tail.trouble
    (tmp_path / records.EVENTS).unlink()
    tail.read()
    assert tail.trouble == ""


def test_a_real_run_is_read_as_its_records_are(small_run: Path) -> None:
    tail = RunTail(small_run)
    tail.read()
    assert tail.rounds == records.read_rounds(small_run)
    assert tail.events == records.read_events(small_run)
