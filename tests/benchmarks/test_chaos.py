"""The chaos runs in their quick form: they disturb, they notice, and nothing is lost."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.chaos import inputs, made_configurations
from benchmarks.chaos.calls import Calls, watched
from benchmarks.chaos.damage import HARMS, Answer, damage
from benchmarks.chaos.durability import durability
from benchmarks.chaos.full_disk import REFUSALS, refuse
from benchmarks.chaos.hostile import variants
from benchmarks.chaos.kinds import KINDS, configured, results, run_to_the_end, wrong
from benchmarks.chaos.page import SECTIONS, Extent
from benchmarks.chaos.peers import Flips, PeerTrials
from benchmarks.chaos.power import Change, _Disk, cut_power
from benchmarks.chaos.soak import KEPT, disturbed, spread, undisturbed
from benchmarks.chaos.soak import configured as configured_long
from ebbflow.core import files
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records

FIRST = next(iter(KINDS))
QUICK = [
    pytest.param("crashes", 90, marks=pytest.mark.slow),
    pytest.param("hostile", 90, marks=pytest.mark.slow),
    pytest.param("inputs", 398, marks=pytest.mark.slow),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize(("name", "part"), QUICK)
def test_a_quick_look_finds_nothing(name: str, part: int) -> None:
    """In a process of its own: forked processes must have no other threads."""
    command = [sys.executable, "-m", "benchmarks.chaos", name, "--part", str(part)]
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


@pytest.mark.slow
def test_a_long_run_is_killed_and_resumed_and_holds_on_to_nothing(tmp_path: Path) -> None:
    config = configured_long(12, next(iter(KEPT.values())))
    whole = undisturbed("whole", tmp_path / "whole", config)
    expected = results(tmp_path / "whole")
    killed = disturbed("killed", tmp_path / "run", config, expected, minutes=0.05, life=(1, 3))
    for found in (whole, killed):
        assert found.wrong == ()
        assert len({note.handles for note in found.notes}) == 1
        assert spread([note.memory for note in found.notes], block=5) < 0.05
    assert [note.session for note in whole.notes] == list(range(2, 13))


def test_the_share_of_the_folder_is_measured_within_one_run(tmp_path: Path) -> None:
    (share,) = durability(tmp_path, part=2)
    assert 0 < share.disk < share.time < 1
    assert 0 < share.processor < 1


OURSELVES = """
import pathlib, sys, torch
from benchmarks.chaos.peers import ourselves
torch.set_num_threads(1)
print("\\n".join(ourselves(pathlib.Path(sys.argv[1]), flips=3)))
"""


@pytest.mark.slow
def test_ebbflow_beside_its_peers(tmp_path: Path) -> None:
    """In a process of its own: forked processes must have no other threads."""
    command = [sys.executable, "-c", OURSELVES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    bad, killed, flipped, full = done.stdout.splitlines()
    assert bad == "refused and named; the round goes on"
    assert killed == "resumes, the same result"
    assert flipped == str(Flips(3, 0, 0))
    assert full == "stops with a sentence; resumes, the same result"


PEER = """
import json, os, pathlib, sys
folder, disturbance = pathlib.Path(sys.argv[1]), sys.argv[2]
saved, result = folder / "saved", folder / "result.json"
if disturbance == "flips":
    result.write_text(json.dumps({"told": 1, "same": 0, "silent": int(sys.argv[3]) - 1}))
elif disturbance == "forget":
    saved.unlink()
elif disturbance in ("kill", "full"):
    saved.write_text("half" if disturbance == "full" else "3")
    sys.exit(1)
else:
    done = int(saved.read_text()) if saved.exists() else 0
    finite = disturbance != "bad"
    found = {"theta": [1.0 + done * 1e-9], "finite": finite, "rounds": 6 - done}
    result.write_text(json.dumps(found))
"""


def test_what_is_said_about_a_peer_is_what_happened(tmp_path: Path) -> None:
    module = tmp_path / "root" / "benchmarks" / "peers" / "careless_trials.py"
    module.parent.mkdir(parents=True)
    module.write_text(PEER, encoding="utf-8")
    start = {"python": sys.executable, "root": str(tmp_path / "root")}
    assert PeerTrials("careless", start, tmp_path / "scratch").rows(flips=5) == [
        "the model is not finite, no word",
        "computes the last 3 rounds, the same result up to rounding",
        "of 5 flips 1 noticed, 0 without effect, 4 silently another model",
        "stops with a traceback; cannot read its last checkpoint, and when that is deleted by hand "
        "begins anew, the same result",
    ]


def test_the_peers_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="make peers"):
        SECTIONS["peers"](tmp_path, Extent())


# --- the tools themselves ------------------------------------------------------------------------


def test_calls_are_counted_below_a_folder_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    calls = Calls(inside, lambda: None)
    with watched(calls):
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

    with pytest.raises(Ended), watched(Calls(tmp_path, end, at=2)):
        (tmp_path / "file").write_bytes(b"content!")
    assert (tmp_path / "file").read_bytes() == b"cont"


def disk_after(*changes: Change) -> _Disk:
    disk = _Disk()
    for change in changes:
        disk.apply(change)
    return disk


WRITTEN = (
    Change("create", "/run/a"),
    Change("write", "/run/a", b"12"),
    Change("fsync", "/run/a"),
)


def test_a_disk_holds_what_was_synchronised_and_any_beginning_of_the_rest() -> None:
    seen = set()
    for seed in range(200):
        more = Change("write", "/run/a", b"34"), Change("replace", "/run/a", "/run/b")
        seen.add(str(disk_after(*WRITTEN, *more).cut(random.Random(seed))))
    contents = (b"12", b"123", b"1234")
    found = {f"{{'/run/{name}': {content!r}}}" for name in "ab" for content in contents}
    assert seen == {"{}", *found}


def test_names_are_there_once_their_folder_was_synchronised() -> None:
    settled = Change("fsync", "/run")
    for seed in range(50):
        disk = disk_after(
            *WRITTEN,
            settled,
            Change("unlink", "/run/a"),
            settled,
            Change("create", "/run/b"),
            settled,
        )
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


def test_every_case_of_bad_input_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the time: archives hold that of their members, to two seconds."""
    made: list[list[object]] = []
    for name, day in (("once", 10_000), ("again", 20_000)):
        here = inputs.desk(tmp_path / name) / "kept"
        monkeypatch.setattr(time, "time", lambda day=day: day * 86_400.0)
        (here / "fifo").unlink()
        monkeypatch.chdir(here)
        requests: list[object] = []
        for kind, (_, make) in inputs.KINDS.items():
            for number in range(8):
                requests.append(make(random.Random(f"{kind} {number}"), number))
                requests.append({p.name: p.read_bytes() for p in here.glob("case.*")})
                requests.append([p.read_bytes() for p in sorted(here.glob("case/*/*.json"))])
                shutil.rmtree("run", ignore_errors=True)
        made.append(requests)
    assert made[0] == made[1]


def test_every_key_of_a_configuration_is_tried() -> None:
    assert made_configurations.untried_keys() == set()


def test_as_many_inputs_are_tried_as_the_page_says() -> None:
    counts = {kind: count for kind, (count, _) in inputs.KINDS.items() if kind != inputs.KEPT}
    assert list(counts.values()) == [5000, 500, 500, 500, 200, 500]
    for kind, count in counts.items():
        assert f"| {kind} | {count} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Answer(2, "", "ebbflow: no\n"), inputs.TOLD),
        (Answer(2, "", "note: x\nebbflow: no\n"), inputs.TOLD),
        (Answer(0, "table\n"), inputs.ACCEPTED),
        (Answer(130, "", "stopped: resume\n"), inputs.ACCEPTED),
        (Answer(2, "", ""), "exit code 2 without a sentence"),
        (Answer(3, "", ""), "exit code 3"),
        (Answer(2, "", f"ebbflow: {'x' * 2000}\n"), "a sentence of 2009 characters"),
        (Answer(2, "", "ebbflow: \x1b[31m\n"), "control characters ['\\x1b']"),
        (Answer(2, "", "module.py:3: RuntimeWarning\n"), "printed 'module.py:3: RuntimeWarning'"),
        (Answer(1, "", crash="Traceback\nValueError: odd\n"), "ValueError: odd"),
        (Answer(1, "", crash="Traceback\nbenchmarks.TookTooLong\n"), "a hang"),
    ],
)
def test_an_answer_is_judged_by_its_code_and_its_sentence(answer: Answer, verdict: str) -> None:
    assert inputs.judged(answer, "compare") == verdict


DYING = """
import os, signal, time
from benchmarks.chaos.limits import in_processes
def work(task):
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 3:
        bytes(2**31)
    if task == 5:
        time.sleep(60)
    return task
print(in_processes(range(7), work, batch=3, memory=2**30, seconds=1))
"""


def test_a_process_that_dies_or_hangs_costs_one_case() -> None:
    """In a process of its own, as above."""
    command = [sys.executable, "-c", DYING]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    assert done.stdout == "[0, None, 2, None, 4, None, 6]\n"


def test_the_page_has_a_place_for_every_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- (\w+) -->", text) == list(SECTIONS)


def test_an_unknown_section_is_refused() -> None:
    from benchmarks.chaos.cli import chaos  # noqa: PLC0415

    with pytest.raises(EbbflowError, match="there is no section 'kills'"):
        chaos(["kills"], PAGE)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        pytest.param("attacks", 13, marks=pytest.mark.slow),
        pytest.param("poison", 16, marks=pytest.mark.slow),
        ("faults", 5),
    ],
)
def test_accuracies_and_faults_in_their_quick_form(name: str, rows: int, tmp_path: Path) -> None:
    lines = SECTIONS[name](tmp_path, Extent(part=30)).splitlines()
    shown = [line for line in lines if line.startswith("|") and "---" not in line]
    assert len(shown) == rows + (2 if name == "faults" else 1)
