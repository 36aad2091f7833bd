"""What an app computes after its last session is not lost when its federation is resumed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="real federations need Flower: pip install 'ebbflow[flower]'")

from ebbflow.flower.launch.driving import Recorded
from ebbflow.flower.launch.federation_settings import FederationSettings
from ebbflow.flower.launch.launcher import EXECUTOR, Federation
from ebbflow.flower.launch.making import make_federation
from ebbflow.flower.launch.process_table import everything
from ebbflow.flower.launch.processes import recorded

EBBFLOW = str(Path(sys.executable).parent / "ebbflow")
PARENT = """
import os, sys, time
if os.fork() == 0:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    os._exit(0)
time.sleep(600)  # without a look at what has become of it
"""
EXPORT = """
    exported = folder / "exported.txt"
    with exported.open("a") as file:
        file.write("began\\n")
    while not (folder / "go").exists():
        import time
        time.sleep(0.1)
    with exported.open("a") as file:
        file.write("ended\\n")
"""


def soon(holds: Callable[[], object], seconds: float = 150) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_executor_has_a_task_for_as_long_as_its_process_runs(tmp_path: Path) -> None:
    federation, go = Federation(tmp_path, FederationSettings()), tmp_path / "go"
    assert not federation.has_tasks()
    try:
        command = [sys.executable, "-c", PARENT, str(go)]
        federation.processes.start(EXECUTOR, command, environment={}, log=tmp_path / "log")
        soon(federation.has_tasks, 20)
        go.touch()
        soon(lambda: not federation.has_tasks(), 20)
        assert federation.processes.running(EXECUTOR) is not None
    finally:
        federation.down()


@pytest.mark.slow
def test_resume_waits_for_what_an_app_does_after_its_last_session(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    make_federation(folder, 2, run={"sessions": 1, "rounds": 1})
    server = folder / "app" / "federation_app" / "server.py"
    call = "    sessions.run(grid, model_arrays(model, initial), evaluate_fn=tested)\n"
    assert call in server.read_text()
    server.write_text(server.read_text().replace(call, call + EXPORT))
    exported = folder / "run" / "exported.txt"
    try:
        first = subprocess.Popen([EBBFLOW, "federate", "run", str(folder)])
        soon(lambda: exported.exists() or first.poll() is not None)
        assert Recorded(folder / "run" / "history").done
        first.kill()
        first.wait()
        second = subprocess.Popen([EBBFLOW, "federate", "resume", str(folder)])
        time.sleep(8)  # it would have stopped the app by now
        assert second.poll() is None
        (folder / "run" / "go").touch()
        assert second.wait(120) == 0
        assert exported.read_text() == "began\nended\n"
    finally:
        for command in (first, second):
            command.kill()
            command.wait()
        subprocess.run([EBBFLOW, "federate", "down", str(folder)], check=True)
    assert recorded(folder) == ()
    assert not [each for each in everything() if str(folder) in _command(each.pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
