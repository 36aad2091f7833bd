"""How far a run is: told in a moment, and without disturbing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records, state
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.state import RunState, run_state
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.run_folders import SMALL, copied
from tests.test_cli import tree


def test_a_finished_run(whole: Path) -> None:
    found = run_state(whole)
    assert found == RunState("finished", 1, 4, 3, 12, 12, (1,), 4)
    assert found.place == "seed 1, session 4 of 4, round 3 (12 of 12 rounds)"


def test_a_stopped_run(half: Path) -> None:
    before = tree(half)
    assert run_state(half) == RunState("stopped", 1, 4, 2, 11, 12, (1,), 4)
    assert tree(half) == before


@pytest.mark.parametrize("count", [1, 3, 4, 12, 13, 17])
def test_rounds_are_counted_over_seeds_and_pilot_sessions(count: int, tmp_path: Path) -> None:
    """Two pilot sessions of 3 rounds, then two of 2: each seed has 10."""
    plan = {"seeds": [8, 5], "rounds": 2, "pilot.sessions": 2, "pilot.rounds": 3}
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL, plan), tmp_path / "run", callbacks=[StopAfter(count)])
    found = run_state(tmp_path / "run")
    assert (found.done, found.total, found.sessions) == (count, 20, 4)
    places = [
        (s, t) for s, length in enumerate((3, 3, 2, 2), start=1) for t in range(1, length + 1)
    ]
    assert (found.session, found.round) == places[(count - 1) % 10]
    assert found.seed == (8 if count <= 10 else 5)


def test_rounds_that_follow_from_durations_are_not_counted(tmp_path: Path) -> None:
    plan = {"schedule.kind": "random", "schedule.round_time": 0.5}
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL, plan), tmp_path / "run", callbacks=[StopAfter(3)])
    found = run_state(tmp_path / "run")
    assert (found.done, found.total, found.sessions) == (None, None, 4)
    assert found.place == f"seed 1, session {found.session} of 4, round {found.round}"


def test_who_holds_the_lock_is_running_and_notices_nothing(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    folder = RunFolder.open(run)
    assert [run_state(run).state for _ in range(3)] == ["running"] * 3
    with pytest.raises(EbbflowError, match="another process is writing"):
        RunFolder.open(run)
    folder.close()
    assert run_state(run).state == "stopped"
    RunFolder.open(run).close()


def test_a_lock_of_another_process_is_seen(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    program = (
        "import sys; from filelock import FileLock\n"
        f"with FileLock({str(run / records.LOCK)!r}): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert run_state(run).state == "running"
        child.send_signal(signal.SIGKILL)
    assert run_state(run).state == "stopped"


def test_a_run_that_starts_is_not_kept_out_by_those_who_look(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    RunFolder.open(run).close()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            state.is_written_to(run)
            time.sleep(0.0005)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(20):
            RunFolder.open(run).close()
    finally:
        over.set()
        for looker in lookers:
            looker.join()


def test_a_folder_without_a_lock_is_starting_at_first(tmp_path: Path) -> None:
    records.claim_folder(tmp_path / "run", with_keys(SMALL).model_dump())
    assert run_state(tmp_path / "run") == RunState(
        "running", done=0, total=12, seeds=(1,), sessions=4
    )
    assert run_state(tmp_path / "run").place == "before the first round"
    then = time.time() - 2 * state.STARTING
    os.utime(tmp_path / "run" / records.CONFIG, (then, then))
    assert run_state(tmp_path / "run").state == "stopped"


def test_a_finished_run_is_finished_while_it_is_repaired(whole: Path, tmp_path: Path) -> None:
    run = copied(whole, tmp_path)
    with FileLock(run / records.LOCK):
        assert run_state(run).state == "finished"


def test_a_run_with_more_seeds_is_no_longer_finished(whole: Path, tmp_path: Path) -> None:
    run = copied(whole, tmp_path)
    with pytest.raises(Stopped):
        experiment.extend(run, [7], callbacks=[StopAfter(2)])
    assert run_state(run) == RunState("stopped", 7, 1, 2, 14, 24, (1, 7), 4)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="holds no ebbflow run"):
        run_state(tmp_path)


@given(cut=st.integers(0, 3000))
def test_a_file_cut_anywhere_gives_its_last_whole_line(whole: Path, cut: int) -> None:
    content = (whole / records.METRICS).read_bytes()
    path = whole.parent / "cut"
    path.mkdir(exist_ok=True)
    (path / records.METRICS).write_bytes(content[:cut])
    lines = content[:cut].split(b"\n")[:-1]
    expected = json.loads(lines[-1])["round"] if lines else None
    found = state._last_round(path)
    assert (None if found is None else found["round"]) == expected


def test_a_damaged_line_a_damaged_configuration_and_links_are_unknown(
    half: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    with (run / records.METRICS).open("ab") as file:
        file.write(b'{"seed": 99, "session": 1, "round": 1, "crc": "00000000"}\nrubbish\n[]\n')
    assert run_state(run)[:4] == ("stopped", 1, 4, 2)
    (run / records.CONFIG).write_bytes(b"\xff seeds = [")
    assert run_state(run) == RunState("stopped", 1, 4, 2)
    (run / records.CONFIG).write_text('sessions = 4\nrounds = "many"\nseeds = [1]\n')
    assert run_state(run).total is None
    (run / records.METRICS).unlink()
    (run / records.METRICS).symlink_to("/dev/zero")
    (run / records.LOCK).unlink()
    os.mkfifo(run / records.LOCK)
    assert run_state(run) == RunState("stopped")


def test_the_end_of_a_long_run_is_read_at_once(half: Path, tmp_path: Path) -> None:
    """A gigabyte takes as long as a kilobyte: only the end is read."""
    run = copied(half, tmp_path)
    end = (run / records.METRICS).read_bytes()
    with (run / records.METRICS).open("wb") as file:
        file.truncate(2**30)  # a hole: no room is needed
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + end)
    began = time.perf_counter()
    assert run_state(run).round == 2
    assert time.perf_counter() - began < 0.25
