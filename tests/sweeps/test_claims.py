"""Who has a cell, how its processes died, why it failed, and whether there is room for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.simulation import ceilings
from ebbflow.sweeps import locks
from ebbflow.sweeps.claims import Claims, checkpoint_number
from ebbflow.sweeps.computing import MOST_DEATHS, CellEnding, compute_cell
from ebbflow.sweeps.cores import _shares, least_used, shares_of_gpus
from ebbflow.sweeps.failures import REMEDY, Failures
from ebbflow.sweeps.room import Room
from ebbflow.sweeps.usage import birth, resident, usage
from tests.sweeps.toys import ToyJobs

HOLD = """
import sys, time
from pathlib import Path
from ebbflow.sweeps.claims import Claims
claim = Claims(Path(sys.argv[1])).take("a", Path(sys.argv[1]) / "cells" / "a")
claim.begin()
print("held", flush=True)
time.sleep(60)
"""


def never() -> bool:
    return False


def toys(folder: Path, **does: str) -> ToyJobs:
    return ToyJobs(folder, does, {})


def test_a_cell_belongs_to_one_process_until_that_dies(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert claims.is_held("a")
        assert claims.take("a", tmp_path) is None
        assert compute_cell(toys(tmp_path, a="do"), "a", never) is CellEnding.TAKEN
        other.kill()
    assert not claims.is_held("a")
    assert [attempt["state"] for attempt in claims.attempts("a")] == ["running"]
    assert compute_cell(toys(tmp_path, a="do"), "a", never) is CellEnding.DONE
    first, second = claims.attempts("a")
    assert (first["pid"], first["state"]) == (other.pid, "running")
    assert (second["pid"], second["state"]) == (os.getpid(), "done")
    assert second["memory"] > 2**20 and second["seconds"] >= 0


def test_what_another_machine_has_just_written_is_seen_before_a_cell_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a machine learns of files that it has looked for in vain by opening their folders."""
    opened: list[object] = []
    usual = os.open

    def opening(path: object, *rest: object, **more: object) -> int:
        opened.append(path)
        return usual(path, *rest, **more)  # type: ignore[arg-type]

    class Remembering(ToyJobs):
        """A cell that was done elsewhere a moment ago."""

        def is_done(self, name: str) -> bool:
            run = self.run_folder(name)
            lock = opened.index(str(self.folder / "claims" / "a.lock"))
            return opened[lock + 1 :] == [self.folder / "claims", run.parent, run]

    monkeypatch.setattr(os, "open", opening)
    assert compute_cell(Remembering(tmp_path, {"a": "do"}, {}), "a", never) is CellEnding.DONE
    assert not (tmp_path / "log").exists()


def test_looking_at_a_claim_does_not_take_it(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    assert not claims.is_held("a")
    claim = claims.take("a", tmp_path)
    assert claim is not None
    with claim:
        assert claims.is_held("a")
    assert not claims.is_held("a")


def test_a_cell_that_fails_says_why_and_is_not_tried_again(tmp_path: Path) -> None:
    jobs, failures = toys(tmp_path, a="refuse", b="bug"), Failures(tmp_path)
    assert compute_cell(jobs, "a", never) is CellEnding.FAILED
    assert compute_cell(jobs, "b", never) is CellEnding.FAILED
    mistake, bug = failures.read("a"), failures.read("b")
    assert mistake is not None and bug is not None
    assert (mistake["sentence"], mistake["details"]) == ("it cannot be: mend it", "")
    assert bug["sentence"] == "a bug, or a plugin's: KeyError: 'a bug'"
    assert "Traceback" in bug["details"] and "toys.py" in bug["details"]
    assert compute_cell(jobs, "a", never) is CellEnding.FAILED
    assert (tmp_path / "log").read_text().count("begin a") == 1
    assert failures.forget("a") and not failures.forget("a")
    assert compute_cell(jobs, "a", never) is CellEnding.FAILED
    assert (tmp_path / "log").read_text().count("begin a") == 2


def test_what_is_computed_and_not_done_is_a_bug(tmp_path: Path) -> None:
    class Endless(ToyJobs):
        def is_done(self, name: str) -> bool:
            return False

    assert compute_cell(Endless(tmp_path, {"a": "do"}, {}), "a", never) is CellEnding.FAILED
    failure = Failures(tmp_path).read("a")
    assert failure is not None and "a was computed, and is not done" in failure["sentence"]


def died(folder: Path, checkpoints: list[int]) -> None:
    """Pretend that processes have died, each of which went on from a checkpoint."""
    note = folder / "claims" / "a.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    attempt = {"host": "h", "pid": 1, "since": "2026-01-01T00:00:00+00:00", "state": "died"}
    how = {"how": "signal 9"}
    attempts = [{**attempt, "checkpoint": number, **how} for number in checkpoints]
    note.write_text(json.dumps({"attempts": attempts}))


def saved(folder: Path, number: int) -> None:
    run = folder / "cells" / "a"
    run.mkdir(parents=True, exist_ok=True)
    (run / f"checkpoint-{number:06d}.json").touch()


def test_a_cell_whose_processes_die_without_progress_is_given_up(tmp_path: Path) -> None:
    jobs = toys(tmp_path, a="do")
    saved(tmp_path, 4)
    died(tmp_path, [4] * MOST_DEATHS)
    assert compute_cell(jobs, "a", never) is CellEnding.FAILED
    failure = Failures(tmp_path).read("a")
    assert failure is not None
    assert failure["sentence"].startswith(
        "its process died 3 times in a row before it had saved anything, the last time by signal 9:"
        " perhaps there was too little memory: make the cell smaller"
    )


def test_a_cell_that_was_given_up_can_be_tried_again(tmp_path: Path) -> None:
    claims, failures = Claims(tmp_path), Failures(tmp_path)
    for _ in range(2):
        for _ in range(MOST_DEATHS):
            claim = claims.take("a", tmp_path / "cells" / "a")
            assert claim is not None and len(claim.deaths) < MOST_DEATHS
            with claim:
                claim.begin()
            claims.note_death("a", os.getpid(), "signal 9")
        assert compute_cell(toys(tmp_path, a="do"), "a", never) is CellEnding.FAILED
        assert failures.forget("a")
    assert compute_cell(toys(tmp_path, a="do"), "a", never) is CellEnding.DONE
    ends = [attempt["state"] for attempt in claims.attempts("a")]
    assert ends == ["died", "died", "failed"] * 2 + ["done"]


@pytest.mark.parametrize("before", [[4, 4], [2, 3, 4], [3, 3, 3], []])
def test_a_cell_that_gets_on_is_not_given_up(before: list[int], tmp_path: Path) -> None:
    saved(tmp_path, 4)
    died(tmp_path, before)
    assert compute_cell(toys(tmp_path, a="do"), "a", never) is CellEnding.DONE


def test_the_number_of_a_checkpoint(tmp_path: Path) -> None:
    assert checkpoint_number(tmp_path / "nowhere") == 0
    for number in (3, 12):
        (tmp_path / f"checkpoint-{number:06d}.json").touch()
    assert checkpoint_number(tmp_path) == 12


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "a.json").write_text('{"attempts": [{"pid": "x"}]}')
    with pytest.raises(EbbflowError, match=r"a.json: attempts.0.* is refused.*: remove the file"):
        Claims(tmp_path).attempts("a")


def test_a_damaged_failure_is_one(tmp_path: Path) -> None:
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "a.json").write_text("rubbish")
    failure = Failures(tmp_path).read("a")
    assert failure is not None
    assert failure["sentence"].endswith("no JSON object: " + REMEDY)


def test_a_lock_that_somebody_keeps_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LONG", 0.05)
    held = locks.taken(tmp_path / "x.lock")
    assert held is not None
    with (
        pytest.raises(EbbflowError, match="another process has held"),
        locks.locked(tmp_path / "x.lock"),
    ):
        pass
    held.release()
    (tmp_path / "file").touch()
    with pytest.raises(EbbflowError, match="cannot be locked"):
        locks.taken(tmp_path / "file" / "x.lock")


# --- memory --------------------------------------------------------------------------------------


def test_what_is_promised_is_not_available_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gigabyte = 10**9
    monkeypatch.setattr(ceilings, "available_memory", lambda: 3 * gigabyte)
    monkeypatch.setattr(ceilings, "total_memory", lambda: 8 * gigabyte)
    monkeypatch.setattr("ebbflow.sweeps.room.resident", lambda pid: gigabyte // 2)
    room = Room(tmp_path)
    assert room.fits(None) and room.fits(3 * gigabyte) and not room.fits(4 * gigabyte)
    assert not room.never(8 * gigabyte) and room.never(9 * gigabyte)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        promise = {
            "pid": other.pid,
            "birth": birth(other.pid),
            "cell": "b",
            "bytes": 2 * gigabyte,
            "cores": [0],
        }
        assert room.reserve("a", gigabyte)
        (path,) = (tmp_path / "hosts").glob("*.json")
        content = json.loads(path.read_text())
        content["promises"].append(promise)
        path.write_text(json.dumps(content))
        # It has half of its two gigabytes: one and a half of the three are left for others.
        assert [each["cell"] for each in room.others()] == ["b"]
        assert room.fits(2 * gigabyte) and not room.fits(2 * gigabyte + 10**6)
        assert not room.reserve("a", 3 * gigabyte)
        other.kill()
    assert room.others() == []  # the dead need nothing
    assert room.reserve("a", 3 * gigabyte)
    room.release()
    assert json.loads(path.read_text()) == {"promises": []}


def test_a_machine_that_is_too_busy_to_promise_anything_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LONG", 0.05)
    jobs = toys(tmp_path, a="do")
    assert Room(tmp_path).reserve("a", None)
    Room(tmp_path).release()
    (path,) = (tmp_path / "hosts").glob("*.lock")
    held = locks.taken(path)
    assert held is not None
    assert compute_cell(jobs, "a", never) is CellEnding.NO_ROOM
    Room(tmp_path).release()
    held.release()
    assert compute_cell(jobs, "a", never) is CellEnding.DONE


def test_a_cell_without_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "available_memory", lambda: 1000)
    jobs = ToyJobs(tmp_path, {"a": "do"}, {"a": 10**12})
    assert compute_cell(jobs, "a", never) is CellEnding.NO_ROOM
    assert Claims(tmp_path).attempts("a") == []
    assert not Claims(tmp_path).is_held("a")


def test_processes_are_told_apart() -> None:
    assert birth(os.getpid()) and not birth(2**22 + 1)
    assert resident(os.getpid()) > 2**20
    assert resident(2**22 + 1) == 0
    began = time.process_time()
    assert usage()["cpu_seconds"] >= round(began, 1) - 0.1


def test_cores_are_shared_out() -> None:
    for cores in ([0], [0, 1], [2, 5, 7, 8, 9]):
        for count in range(1, 8):
            shares = list(_shares(cores, count))
            assert len(shares) == count and all(shares)
            used = [core for share in shares for core in share]
            assert set(used) <= set(cores)
            if count <= len(cores):
                assert sorted(used) == cores


def test_every_worker_has_a_graphics_processor_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5f")
    assert shares_of_gpus(3) == ["3", "GPU-5f", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert shares_of_gpus(2) == [None, None]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("ebbflow.sweeps.cores.GPUS", tmp_path)
    assert shares_of_gpus(3) == ["0", "1", "0"]


def test_cores_that_others_use_are_left_to_them() -> None:
    own = sorted(os.sched_getaffinity(0))
    assert least_used(1, own[:1]) == own[1:2] or len(own) == 1
    assert least_used(99, []) == own
