"""The demo of a real federation: without a network, and gone without a trace however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from ebbflow.flower.launch.process_table import everything
from ebbflow.flower.launch.processes import recorded

pytestmark = pytest.mark.slow
EBBFLOW = str(Path(sys.executable).parent / "ebbflow")
SHORT = ("--sessions", "2", "--rounds", "1", "--start", "warm_start")


def of_this_demo(folder: Path) -> list[int]:
    """Return the processes whose command line names the folder."""
    found = []
    for process in everything():
        try:
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command and process.pid != os.getpid():
            found.append(process.pid)
    return found


def no_network() -> list[str]:
    """Return what runs a command with nothing but loopback, where that is allowed."""
    if shutil.which("unshare") and shutil.which("ip"):
        tried = subprocess.run(
            ["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, check=False
        )
        if tried.returncode == 0:
            return ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    pytest.skip("needs unshare and ip, and the right to use them")


def test_the_demo_without_a_network(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    out = tmp_path / "out"
    done = subprocess.run(
        [*no_network(), EBBFLOW, "federate", "demo", *SHORT, "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={**os.environ, "HOME": str(home)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    came = json.loads(done.stdout)
    assert came["equal"]
    assert all(row["federation"] == row["simulator"] for row in came["rounds"])
    assert [row["devices"] for row in came["rounds"]] == [[0, 1, 2]] * 2 + [[2, 3, 4]] * 2
    assert (out / "federation.png").stat().st_size > 10_000
    assert not of_this_demo(out)
    assert not (home / ".flwr").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "out"]
    assert not (out / "link").exists()


def started(out: Path) -> subprocess.Popen[str]:
    """Start the demo, and return when its first session has begun."""
    child = subprocess.Popen(
        [EBBFLOW, "federate", "demo", *SHORT, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("session 1 begins"):
            return child
    raise AssertionError("the demo ended early")


def gone(out: Path, seconds: float = 15) -> bool:
    until = time.monotonic() + seconds
    while of_this_demo(out) and time.monotonic() < until:
        time.sleep(0.2)
    return not of_this_demo(out)


def test_nothing_stays_after_an_interrupt(tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = started(out)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert gone(out)
    assert not out.exists()


def test_nothing_stays_after_sigkill_and_clean(tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = started(out)
    child.kill()
    child.communicate(timeout=60)
    assert any(record.running for record in recorded(out))
    done = subprocess.run(
        [EBBFLOW, "federate", "clean", str(out), "--all"],
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )
    assert "ended" in done.stdout
    assert gone(out)
    assert not out.exists()
