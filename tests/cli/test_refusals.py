"""A run that is refused before its first round leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.data import datasets
from ebbflow.simulation import ceilings
from tests.test_cli import EXECUTABLE, TINY, ebbflow

REFUSED = {
    "an unknown key": ("--set", "partition.overlapp=1"),
    "a value out of range": ("--overlap", "1.5"),
    "a word for a number": ("--rounds", "many"),
    "an unknown option": ("--nosuch",),
    "an unknown preset": ("--preset", "nosuch"),
    "an unknown data set": ("--dataset", "nosuch"),
    "data that are not here": ("--dataset", "svhn"),
    "a data file that is none": ("--dataset", "broken.npz"),
    "an unknown algorithm": ("--algorithm", "nosuch"),
    "an unknown method": ("--methods", "nosuch"),
    "an unknown partition": ("--partition", "nosuch"),
    "an unknown model": ("--set", "model.kind=nosuch"),
    "an unknown aggregation": ("--set", "aggregation.rule=nosuch"),
    "a plugin that is missing": ("--plugin", "nosuch.py"),
    "a plugin that is broken": ("--plugin", "broken.py"),
    "weights that are missing": ("--set", "model.weights=nosuch.safetensors"),
    "more devices than samples": ("--devices", "5000"),
    "a trace that is too short": (
        "--set", "schedule.kind=trace", "--set", "schedule.file=short.csv",
    ),
    "a GPU that is not here": ("--set", "device=cuda"),
    "a file that is not there": ("nosuch.toml",),
    "a tracker that nobody knows": ("--log", "nosuch"),
}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EBBFLOW_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "broken.npz").write_bytes(b"rubbish")
    (tmp_path / "broken.py").write_text("import nosuch_module\n")
    (tmp_path / "short.csv").write_text("time,device,event\n0,a,join\n")
    return tmp_path


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("out", [(), ("--out", "deep/below/run")], ids=["runs", "out"])
def test_a_refused_run_leaves_nothing(name: str, out: tuple[str, ...], desk: Path) -> None:
    if name == "a GPU that is not here" and __import__("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    before = sorted(desk.rglob("*"))
    answer = ebbflow("compare", *TINY, *REFUSED[name], *out)
    assert answer.code == 2, answer
    assert answer.out == ""
    assert sorted(desk.rglob("*")) == before


def test_a_run_that_does_not_fit_leaves_nothing(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(desk.rglob("*"))
    monkeypatch.setattr(ceilings, "available_memory", lambda: 1000)
    assert ebbflow("run", *TINY).code == 2
    assert sorted(desk.rglob("*")) == before


def test_what_was_there_before_stays(desk: Path) -> None:
    (desk / "deep" / "empty").mkdir(parents=True)
    (desk / "runs").mkdir()
    (desk / "runs" / "notes.txt").write_text("mine")
    before = sorted(desk.rglob("*"))
    for out in ((), ("--out", "deep/empty"), ("--out", "deep/new/run")):
        assert ebbflow("run", *TINY, "--dataset", "nosuch", *out).code == 2
        assert sorted(desk.rglob("*")) == before


def test_files_of_others_are_not_touched(desk: Path) -> None:
    (desk / "mine").mkdir()
    for name in ("run.log", "environment.json", ".lock", ".config.toml.77-12345678.tmp"):
        (desk / "mine" / name).write_text("mine")
    before = sorted(desk.rglob("*"))
    assert ebbflow("run", *TINY, "--out", "mine").code == 2
    assert sorted(desk.rglob("*")) == before


def test_another_run_in_the_folder_is_not_touched(desk: Path) -> None:
    assert ebbflow("run", *TINY, "--quiet", "--out", "run") == (0, "run\n", "")
    before = {path: path.stat().st_mtime_ns for path in desk.rglob("*")}
    assert ebbflow("run", *TINY, "--out", "run").code == 2
    assert ebbflow("run", *TINY, "--out", "run/history/inner").code == 2
    assert {path: path.stat().st_mtime_ns for path in desk.rglob("*")} == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, EbbflowError("no"), ZeroDivisionError])
def test_whatever_ends_the_planning_leaves_nothing(
    desk: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    before = sorted(desk.rglob("*"))
    monkeypatch.setattr(datasets, "load", mock.Mock(side_effect=error))
    if error is ZeroDivisionError:  # a bug of ours comes through as it is
        with pytest.raises(ZeroDivisionError):
            ebbflow("compare", *TINY)
    else:
        assert ebbflow("compare", *TINY).code == (130 if error is KeyboardInterrupt else 2)
    assert sorted(desk.rglob("*")) == before


def test_an_error_before_the_first_round_leaves_nothing_and_an_interrupt_can_be_resumed(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(desk.rglob("*"))
    monkeypatch.setattr(experiment, "_simulate", mock.Mock(side_effect=EbbflowError("no")))
    assert ebbflow("compare", *TINY) == (2, "", "ebbflow: no\n")
    assert sorted(desk.rglob("*")) == before
    monkeypatch.setattr(experiment, "_simulate", mock.Mock(side_effect=KeyboardInterrupt))
    assert "resume with" in ebbflow("compare", *TINY, "--out", "kept").err
    assert (desk / "kept" / "config.toml").exists()


def test_a_run_that_fails_once_it_trains_is_kept(desk: Path) -> None:
    diverging = ("--methods", "previous", "--set", "lr.initial=3e38")
    answer = ebbflow("run", *TINY, *diverging, "--out", "kept")
    assert answer.code == 2
    assert "failed after" in (desk / "kept" / "run.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_torch_is_imported_leaves_nothing(
    number: signal.Signals, desk: Path
) -> None:
    x = np.zeros((4000, 500), dtype=np.float32)
    np.savez(
        desk / "large.npz", x_train=x, y_train=np.arange(4000) % 3, x_test=x[:3], y_test=[0, 1, 2]
    )
    before = sorted(desk.rglob("*"))
    with subprocess.Popen(
        [EXECUTABLE, "compare", "--dataset", "large.npz", "--out", "a/b/c"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as child:
        until = time.monotonic() + 30
        while not (desk / "a" / "b" / "c" / "config.toml").exists():
            assert time.monotonic() < until
            time.sleep(0.002)
        child.send_signal(number)
        _, err = child.communicate(timeout=20)
    assert child.returncode == 128 + number
    assert err == "stopped before anything was computed\n"
    assert sorted(desk.rglob("*")) == before
