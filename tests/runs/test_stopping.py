"""Runs ended by signals: saved, told how to go on, and the same as if nobody had stopped them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.core import files
from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths
from tests.callbacks import Stopped
from tests.configs import with_keys
from tests.run_folders import SMALL, copied, same_results, saved
from tests.test_cli import EXECUTABLE, ebbflow, tree

LONG = ("--seeds", "1", "--sessions", "6", "--rounds", "400", "--devices", "6")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a long comparison in a process of its own, with few checkpoints."""
    command = [EXECUTABLE, "compare", *LONG, "--set", "checkpoint.seconds=1e6", *arguments]
    with subprocess.Popen(
        [*command, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_until(ready: Path, lines: int, child: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if ready.exists() and ready.read_bytes().count(b"\n") >= lines:
            return
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)
    raise AssertionError("the run did not begin")


@pytest.mark.parametrize("number", CODES)
def test_one_signal_saves_the_last_round_and_says_how_to_go_on(
    number: signal.Signals, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with started(folder) as child:
        wait_until(folder / records.METRICS, 40, child)
        child.send_signal(number)
        began = time.monotonic()
        out, err = child.communicate(timeout=20)
        assert time.monotonic() - began < 5
    assert child.returncode == CODES[number]
    assert err.endswith(f"stopped: resume with `ebbflow resume {folder}`\n")
    assert "Traceback" not in err and out == ""
    lines = sum(1 for _ in records.read_lines(folder / records.METRICS))
    assert lines == 4 * ((saved(folder)["session"] - 1) * 400 + saved(folder)["round"])
    assert saved(folder)["round"] > 0


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(folder) as child:
        wait_until(folder / records.METRICS, 8, child)
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=5)
    assert child.returncode in CODES.values()
    assert "stopped: resume with" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.5, 0.8, 1.1])
@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_it_begins_is_no_traceback(
    number: signal.Signals, delay: float, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with started(folder) as child:
        until = time.monotonic() + 60
        while not (folder / records.CONFIG).exists() and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(delay)
        child.send_signal(number)
        _, err = child.communicate(timeout=20)
    assert child.returncode == CODES[number]
    assert "Traceback" not in err
    planned = (folder / records.ENVIRONMENT).exists()
    assert ("stopped: resume with" in err) == planned == folder.exists()
    assert ("stopped before anything was computed" in err) != planned
    assert ebbflow("metrics", str(folder)).code in (0, 2)


def test_a_run_that_is_asked_to_stop_after_any_round_goes_on_as_if_it_had_not(
    tmp_path: Path,
) -> None:
    config = with_keys(SMALL, {"checkpoint.seconds": 1e6})
    experiment.run(config, tmp_path / "whole")
    for stop in range(1, 12):
        folder, asked = tmp_path / f"run-{stop}", iter(range(1, 100))
        with pytest.raises(RunStoppedError):
            experiment.run(config, folder, stop=lambda asked=asked, n=stop: next(asked) >= n)  # type: ignore[misc]
        experiment.resume(folder)
        assert same_results(folder, tmp_path / "whole")


# --- litter --------------------------------------------------------------------------------------


def test_what_killed_writers_left_is_swept(half: Path, whole: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    below = run / records.HISTORY / "fedavg" / "previous" / "seed-1"
    left = [
        run / ".metrics.jsonl.123-0a1b2c3d.tmp",
        below / ".session-0003.safetensors.99-00ff00ff.tmp",
        below / "session-0009.safetensors",
        run / "checkpoint-000001.safetensors",
    ]
    mine = [run / "notes.tmp", run / ".notes.tmp", below / "my-copy.safetensors"]
    for path in (*left, *mine):
        path.write_bytes(b"?")
    experiment.resume(run)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in mine)
    for path in mine:
        path.unlink()
    assert same_results(run, whole)


def test_tensors_left_when_a_run_died_at_its_very_end_are_swept(
    whole: Path, tmp_path: Path
) -> None:
    """Between deleting the older checkpoint and its tensors, and before the summary."""
    run = copied(whole, tmp_path)
    (run / records.SUMMARY).unlink()
    orphan = run / "checkpoint-000001.safetensors"
    orphan.write_bytes(b"?")
    experiment.resume(run)
    assert not orphan.exists()
    assert same_results(run, whole)


def test_temporary_files_have_the_name_that_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def dying(handle: int) -> None:
        seen.extend(path.name for path in tmp_path.iterdir())
        raise Stopped

    monkeypatch.setattr(os, "fsync", dying)
    with pytest.raises(Stopped):
        files.write_atomically(tmp_path / "session-0003.safetensors", b"new")
    (name,) = seen
    assert files.TEMPORARY.fullmatch(name)


def test_a_folder_killed_before_its_configuration_can_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / ".config.toml.77-12345678.tmp").write_text("half")
    experiment.run(with_keys(SMALL, {"sessions": 1}), folder)
    assert not list(folder.glob(".*.tmp"))


def test_a_run_within_a_run_is_refused_and_beside_a_file_of_that_name_is_not(
    whole: Path, tmp_path: Path
) -> None:
    run = copied(whole, tmp_path)
    for inside in (run / "inner", run / "history" / "inner" / "more"):
        with pytest.raises(EbbflowError, match="lies within the run"):
            experiment.run(with_keys(SMALL, {}), inside)
        assert not inside.exists()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / records.CONFIG).write_text("rounds = 3\n")
    experiment.run(with_keys(SMALL, {"sessions": 1}), tmp_path / "project" / "runs" / "one")


def test_a_path_that_is_no_text_is_refused_at_once(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    with pytest.raises(EbbflowError, match="is no text"):
        experiment.run(with_keys(SMALL, {}), path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_finished_run_is_read_where_nothing_can_be_written_as_a_user(
    whole: Path, tmp_path: Path
) -> None:
    run = copied(whole, tmp_path)
    for path in [run, *run.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert ebbflow("resume", str(run)).code == 0


def test_a_finished_run_is_only_read(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> str:
        raise OSError(30, "Read-only file system")

    run = copied(whole, tmp_path)
    before = tree(run)
    monkeypatch.setattr(files, "write_atomically", refused)
    monkeypatch.setattr(records, "write_atomically", refused)
    rows = experiment.resume(run).rows
    assert rows == records.read_records(whole).rows
    assert tree(run) == before
    assert len(checkpoint_paths(run)) == 1
