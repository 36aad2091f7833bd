"""Commands on a run that is not finished: they say so, and show what there is."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.runs import records
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.state import run_state
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.run_folders import SMALL, same_results
from tests.test_cli import EXECUTABLE, Answer, ebbflow

PRIVATE = {"privacy.clip": 1.0, "privacy.noise": 1.0, "methods": ["previous", "average"]}
COMMANDS = ("metrics", "cost", "privacy", "verify", "history ls", "history show")


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was stopped in its fifth session, after the first transition."""
    folder = tmp_path_factory.mktemp("states") / "run"
    config = with_keys(SMALL, {"sessions": 6}, PRIVATE)
    with pytest.raises(Stopped):
        experiment.run(config, folder, callbacks=[StopAfter(14)])
    return folder


def asked(command: str, folder: Path, *more: str) -> Answer:
    session = ("4",) if command == "history show" else ()
    return ebbflow(*command.split(), str(folder), *session, *more)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stopped_run_names_the_remedy(command: str, half: Path) -> None:
    place = "seed 1, session 5 of 6, round 2 (14 of 18 rounds)"
    sentence = f"{half} was stopped, {place}: `ebbflow resume {half}` goes on with it\n"
    plain, as_json = asked(command, half), asked(command, half, "--json")
    assert (plain.code, as_json.code) == (0, 0)
    assert plain.out
    assert (plain.err, as_json.err) == (sentence, sentence)
    json.loads(as_json.out)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_running_run_says_how_far_it_is(command: str, half: Path) -> None:
    folder = RunFolder.open(half)
    try:
        answer = asked(command, half)
    finally:
        folder.close()
    assert answer.code == 0
    assert answer.out
    assert answer.err == (
        f"{half} is still running, seed 1, session 5 of 6, round 2 (14 of 18 rounds): this is what "
        "there is so far\n"
    )


def test_a_finished_run_says_nothing(tmp_path: Path) -> None:
    experiment.run(with_keys(SMALL, PRIVATE), tmp_path / "run")
    for command in COMMANDS:
        assert asked(command, tmp_path / "run").err == ""


@pytest.mark.slow
def test_looking_at_a_run_does_not_disturb_it(tmp_path: Path) -> None:
    """While it computes, it is looked at all the time; it comes out as one that nobody saw."""
    arguments = ("--seeds", "1", "--sessions", "4", "--rounds", "40", "--devices", "4", "-q")
    assert ebbflow("compare", *arguments, "--out", str(tmp_path / "whole")).code == 0
    folder = tmp_path / "run"
    with subprocess.Popen(
        [EXECUTABLE, "compare", *arguments, "--out", str(folder)], stdout=subprocess.DEVNULL
    ) as child:
        seen = []
        while child.poll() is None:
            if (folder / records.CONFIG).exists():
                seen.append(run_state(folder))
            time.sleep(0.002)
    assert child.returncode == 0
    assert {state.state for state in seen} <= {"running", "finished"}
    assert "running" in {state.state for state in seen}
    done = [state.done for state in seen if state.done is not None]
    assert done == sorted(done)
    assert run_state(folder).state == "finished"
    assert same_results(folder, tmp_path / "whole")


def test_a_killed_run_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = ("--seeds", "1", "--sessions", "6", "--rounds", "400", "--devices", "6", "-q")
    with subprocess.Popen([EXECUTABLE, "compare", *long, "--out", str(folder)]) as child:
        until = time.monotonic() + 60
        while not (folder / records.METRICS).exists() and time.monotonic() < until:
            time.sleep(0.005)
        assert run_state(folder).state == "running"
        child.send_signal(signal.SIGKILL)
    assert run_state(folder).state == "stopped"
