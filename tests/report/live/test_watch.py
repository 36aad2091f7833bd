"""`ebbflow watch` in a process of its own, beside a run in another."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ebbflow.runs import records
from tests.report.live.growing import GrowingRun
from tests.runs.test_stopping import wait_until
from tests.test_cli import EXECUTABLE, ebbflow

RUN = ("--methods", "warm_start,previous", "--seeds", "1", "--sessions", "4", "--rounds", "500")
TOTAL = 2000


class Watcher:
    """A process that runs `ebbflow watch`."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        assert child.stdout is not None
        self.place = json.loads(child.stdout.readline())
        self.url: str = self.place["url"]
        self.cursor = ""

    def get(self, name: str) -> bytes:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", parts.path + name)
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read()

    def ask(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.get(f"changes?after={self.cursor}"))
        self.cursor = answer["cursor"]
        return answer

    def ask_until(self, right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            answer = self.ask()
            if right(answer):
                return answer
            time.sleep(0.1)
        raise AssertionError(f"it did not come to this: {answer['state']}")

    def end(self, number: signal.Signals) -> tuple[str, str]:
        """Ask it to end, and return what it still says."""
        self.child.send_signal(number)
        return self.child.communicate(timeout=20)


@contextlib.contextmanager
def watching(*arguments: str, **options: Any) -> Iterator[Watcher]:
    options = {"stdin": subprocess.DEVNULL} | options
    with subprocess.Popen(
        [EXECUTABLE, "watch", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as child:
        try:
            yield Watcher(child)
        finally:
            child.kill()


@contextlib.contextmanager
def computing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([EXECUTABLE, *arguments, "--quiet"], text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


# --- beside a run --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_followed_from_before_its_beginning_beyond_a_crash_to_its_end(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    with watching(str(run)) as watcher:
        assert b"There is no run yet at" in watcher.get("")
        assert watcher.ask() == {
            "cursor": "0-0-0",
            "state": [],
            "rounds": [],
            "starts": [],
            "content": None,
        }
        with computing("compare", *RUN, "--devices", "6", "--out", str(run)) as child:
            # It is halted whenever something is compared: it is faster than we could ask.
            wait_until(run / records.METRICS, 4, child)
            child.send_signal(signal.SIGSTOP)
            first = watcher.ask_until(lambda answer: bool(answer["content"]))
            assert first["content"]["runs"][0]["name"] == "run"
            child.send_signal(signal.SIGCONT)
            wait_until(run / records.METRICS, 100, child)
            child.send_signal(signal.SIGSTOP)
            moving = watcher.ask_until(lambda answer: bool(answer["rounds"]))
            assert moving["state"][0]["state"] == "running"
            assert moving["state"][0]["total"] == TOTAL
            assert first["state"][0]["done"] < moving["state"][0]["done"] < TOTAL
            child.send_signal(signal.SIGCONT)
            wait_until(run / records.METRICS, 1010, child)
            child.send_signal(signal.SIGKILL)
            child.wait()
        stopped = watcher.ask_until(lambda answer: answer["state"][0]["state"] == "stopped")
        assert moving["state"][0]["done"] < stopped["state"][0]["done"] < TOTAL
        with computing("resume", str(run)) as child:
            last = watcher.ask_until(lambda answer: answer["state"][0]["state"] == "finished")
            assert child.wait(60) == 0
        # One that was begun before the end may come first.
        report = json.loads(ebbflow("report", str(run), "--json").out)
        if last["content"] != report:
            watcher.ask_until(lambda answer: bool(answer["content"] == report))
        assert watcher.ask()["content"] is None
        out, err = watcher.end(signal.SIGINT)
    assert watcher.child.returncode == 0
    assert out == ""
    assert err.splitlines() == [
        f"{run} holds no run yet: the page shows it as soon as it begins",
        "the run is finished; the page stays until you stop this",
    ]
    assert is_free(watcher.place["port"])


def test_runs_of_a_sweep_are_found_as_they_begin(small_run: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    GrowingRun(small_run, sweep / "a").grow(1, 1)
    with watching(str(sweep)) as watcher:
        found = watcher.ask_until(lambda answer: bool(answer["content"]))
        assert [run["name"] for run in found["content"]["runs"]] == ["a"]
        GrowingRun(small_run, sweep / "b").grow(1, 2)
        found = watcher.ask_until(lambda answer: len(answer["state"]) == 2)
        assert [run["name"] for run in found["content"]["runs"]] == ["a", "b"]


@pytest.mark.slow
def test_nobody_has_to_read_what_it_says(small_run: Path) -> None:
    """As in `ebbflow watch RUN 2>&1 | head -1`."""
    with watching(str(small_run)) as watcher:
        for pipe in (watcher.child.stdout, watcher.child.stderr):
            assert pipe is not None
            pipe.close()
        last = watcher.ask_until(lambda answer: bool(answer["content"]))
        assert last["state"][0]["state"] == "finished"
        watcher.child.terminate()
        assert watcher.child.wait(20) == 0


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_when_asked_to(number: signal.Signals, small_run: Path) -> None:
    with watching(str(small_run)) as watcher:
        assert watcher.place["pid"] == watcher.child.pid
        busy = socket.create_connection(("127.0.0.1", watcher.place["port"]))
        with busy:  # somebody is connected, and says nothing
            out, err = watcher.end(number)
    assert (watcher.child.returncode, out, err) == (0, "", "")
    assert is_free(watcher.place["port"])


def test_it_ends_with_the_program_that_holds_its_standard_input(small_run: Path) -> None:
    with watching(str(small_run), stdin=subprocess.PIPE) as watcher:
        watcher.ask()
        assert watcher.child.stdin is not None
        watcher.child.stdin.write("nobody reads this\n")
        watcher.child.stdin.flush()
        watcher.ask()
        watcher.child.stdin.close()
        assert watcher.child.wait(20) == 0


def test_a_standard_input_that_was_never_there_is_no_reason_to_end(small_run: Path) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with watching(str(small_run), stdin=reading) as watcher:
        os.close(reading)
        watcher.ask()
        time.sleep(0.3)
        assert watcher.child.poll() is None


def test_it_ends_with_its_terminal(small_run: Path) -> None:
    ours, theirs = pty.openpty()
    # Without a controlling terminal there is no signal, only a terminal that is gone.
    with watching(str(small_run), stdin=theirs, start_new_session=True) as watcher:
        os.close(theirs)
        watcher.ask()
        os.close(ours)
        assert watcher.child.wait(20) == 0


# --- what it prints, and how it is called --------------------------------------------------------


def test_it_prints_the_address_and_how_to_stop(small_run: Path) -> None:
    command = [EXECUTABLE, "watch", str(small_run)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        child.terminate()
        out, err = child.communicate(timeout=20)
    assert line.startswith("http://127.0.0.1:") and line.endswith("/\n") and out == ""
    assert err == "press Ctrl-C to stop; who knows this address can see the page\n"


def test_a_port_in_use_is_a_sentence(small_run: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [EXECUTABLE, "watch", str(small_run), "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert f"--port {port} cannot be used (Address already in use)" in done.stderr
    assert done.stdout == ""


def test_the_port_that_is_asked_for_is_used(small_run: Path) -> None:
    with socket.socket() as once:
        once.bind(("127.0.0.1", 0))
        port = once.getsockname()[1]
    with watching(str(small_run), "--port", str(port)) as watcher:
        assert watcher.place["port"] == port
        watcher.ask()


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = ebbflow("watch", str(tmp_path / "file"))
    assert answer.code == 2
    assert "is no folder" in answer.err


@pytest.mark.parametrize("port", ["65536", "-1", "x"])
def test_a_port_that_is_none_is_a_sentence(port: str, tmp_path: Path) -> None:
    answer = ebbflow("watch", str(tmp_path), "--port", port)
    assert answer.code == 2
    assert "--port" in answer.err and "Traceback" not in answer.err


def test_a_path_cannot_colour_the_terminal(tmp_path: Path) -> None:
    with watching(str(tmp_path / "\x1b[31mred")) as watcher:
        _, err = watcher.end(signal.SIGTERM)
    assert "\\x1b[31mred holds no run yet" in err
    assert "\x1b" not in err


def test_the_browser_is_given_a_file_that_only_the_user_can_read(
    small_run: Path, tmp_path: Path
) -> None:
    """The command line of a browser can be read by every user of a machine."""
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(
        "#!/bin/sh\nexec > /dev/null 2>&1\n"
        f'echo "$1" > {seen}.part\nmv {seen}.part {seen}\nexec sleep 5\n'
    )
    browser.chmod(0o755)
    environment = os.environ | {"BROWSER": str(browser), "DISPLAY": ":0"}
    with watching(str(small_run), "--open", env=environment) as watcher:
        until = time.monotonic() + 20
        while not seen.exists() and time.monotonic() < until:
            time.sleep(0.05)
        address = seen.read_text().strip()
        assert address.startswith("file://") and watcher.url not in address
        page = Path(urlsplit(address).path)
        assert watcher.url in page.read_text()
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
        watcher.ask()  # though the browser has not ended
        watcher.end(signal.SIGTERM)
        assert not page.parent.exists()
