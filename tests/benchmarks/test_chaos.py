"""The chaos runs in their quick form: they disturb, they notice, and nothing is lost."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos.calls import Calls, counted
from benchmarks.chaos.damage import HARMS, damage
from benchmarks.chaos.full_disk import REFUSALS, refuse
from benchmarks.chaos.hostile import variants
from benchmarks.chaos.kinds import KINDS, configured, results, run_to_the_end, wrong
from benchmarks.chaos.page import SECTIONS
from benchmarks.chaos.power import Change, _Disk, cut_power
from ebbflow.core import files
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records

FIRST = next(iter(KINDS))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize("name", ["crashes", "hostile"])
def test_a_quick_look_finds_nothing(name: str) -> None:
    """In a process of its own: forked processes must have no other threads."""
    command = [sys.executable, "-m", "benchmarks.chaos", name, "--part", "45"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "|" in line][2:]
    assert rows
    assert {row[-1] for row in rows} == {"0"}, done.stdout


@pytest.mark.parametrize("harm", HARMS)
def test_damage_is_told_or_does_no_harm(harm: str, tmp_path: Path) -> None:
    for found in damage(FIRST, tmp_path / "scratch", 5, harm, seed=1):
        assert found.wrong == ()
        assert found.noticed + found.harmless == found.trials == 5


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_disk_that_refuses_is_told_and_the_run_goes_on_later(
    refusal: str, tmp_path: Path
) -> None:
    found = refuse(FIRST, tmp_path / "scratch", 2, refusal)
    assert (found.wrong, found.noticed) == ((), 2)


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    found = cut_power(FIRST, tmp_path / "scratch", 8)
    assert (found.wrong, found.harmless) == ((), 8)


# --- the tools themselves ------------------------------------------------------------------------


def test_calls_are_counted_below_a_folder_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    calls = Calls(inside, lambda: None)
    with counted(calls):
        files.write_atomically(inside / "file", b"content")
        calls.names.append("|")
        (outside / "file").write_bytes(b"content")
    assert calls.names == ["create", "write", "fsync", "replace", "fsync", "|"]
    (inside / "file").unlink()
    assert calls.count == 5


def test_a_write_is_cut_in_half(tmp_path: Path) -> None:
    class Ended(Exception):  # noqa: N818
        pass

    def end() -> None:
        raise Ended

    with pytest.raises(Ended), counted(Calls(tmp_path, end, at=2)):
        (tmp_path / "file").write_bytes(b"content!")
    assert (tmp_path / "file").read_bytes() == b"cont"


def test_a_disk_holds_what_was_synchronised_and_any_beginning_of_the_rest() -> None:
    seen = set()
    for seed in range(200):
        disk = _Disk()
        for change in (
            Change("create", "/run/a"),
            Change("write", "/run/a", b"12"),
            Change("sync", "/run/a"),
            Change("write", "/run/a", b"34"),
            Change("rename", "/run/a", "/run/b"),
        ):
            disk.apply(change)
        seen.add(str(disk.cut(random.Random(seed))))
    contents = (b"12", b"123", b"1234")
    found = {f"{{'/run/{name}': {content!r}}}" for name in "ab" for content in contents}
    assert seen == {"{}", *found}


def test_names_are_there_once_their_folder_was_synchronised() -> None:
    for seed in range(50):
        disk = _Disk()
        for change in (
            Change("create", "/run/a"),
            Change("write", "/run/a", b"12"),
            Change("sync", "/run/a"),
            Change("sync", "/run"),
            Change("unlink", "/run/a"),
            Change("sync", "/run"),
            Change("create", "/run/b"),
            Change("sync", "/run"),
        ):
            disk.apply(change)
        assert disk.cut(random.Random(seed)) == {"/run/b": b""}


def test_what_is_wrong_is_noticed(tmp_path: Path) -> None:
    run_to_the_end(FIRST, tmp_path / "run")
    expected = results(tmp_path / "run")
    assert wrong(tmp_path / "run", expected) == ""
    assert wrong(tmp_path / "run", {**expected, records.METRICS: "other"}) == records.METRICS
    (tmp_path / "run" / ".x.1-01234567.tmp").touch()
    assert wrong(tmp_path / "run", expected) == "litter .x.1-01234567.tmp"


def test_all_kinds_can_be_run_and_there_are_enough_variants() -> None:
    assert len(KINDS) == 9
    for kind in KINDS:
        configured(kind)
    names = [name for name, _ in variants()]
    assert len(names) >= 200


def test_the_page_has_a_place_for_every_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- (\w+) -->", text) == list(SECTIONS)


def test_an_unknown_section_is_refused() -> None:
    from benchmarks.chaos.cli import chaos  # noqa: PLC0415

    with pytest.raises(EbbflowError, match="there is no section 'kills'"):
        chaos(["kills"], PAGE, 1)
