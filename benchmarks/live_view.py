"""Measures what it costs a run to be watched: `python -m benchmarks.live_view`.

    EBBFLOW_DATA=... python -m benchmarks.live_view --repeats 5

A run alone, a run with `ebbflow watch` whose page a program asks for and then its changes every two
seconds, and a run whose page a real browser shows (Chromium without a window), in turns. The
watcher is there before the run, so that all of the run is watched. Medians are compared, by the
clock and by processor time: other programs on the machine disturb the clock. Processor times are
read from /proc, so that this runs on Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.memory import family

EBBFLOW = str(Path(sys.executable).parent / "ebbflow")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_MNIST = ("--preset", "authors-code", "--dataset", "mnist", "--seeds")
WORKLOADS = {
    "digits": ("--preset", "demo", "--sessions", "40", "--rounds", "60", "--seeds", "1,2"),
    "mnist": (*_MNIST, "100"),
    "mnist-longer": (*_MNIST, "100-104"),
}
COLUMNS = (
    *("run", "watched", "clock (s)", "processor (s)", "watcher (s)", "browser (s)"),
    *("more clock", "more processor"),
)
EVERY = 2.0
"""Seconds between the questions of a program; a page asks as often."""
_TICKS = os.sysconf("SC_CLK_TCK")


class LiveCost(NamedTuple):
    """Seconds: of the run by the clock, and of processor time."""

    clock: float
    run: float
    watcher: float = 0.0
    browser: float = 0.0


# --- processes -----------------------------------------------------------------------------------


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far, or 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def waited(child: subprocess.Popen[str]) -> float:
    """Wait for a process, and return the processor time of it and of what it had started."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def run_once(arguments: Sequence[str], folder: Path) -> LiveCost:
    """Run a comparison in a process of its own."""
    command = [EBBFLOW, "compare", *arguments, "--out", str(folder), "--quiet"]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)
    used = waited(child)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {child.returncode}")
    return LiveCost(time.perf_counter() - began, used)


@contextlib.contextmanager
def watcher(folder: Path) -> Iterator[tuple[str, int, Callable[[], float]]]:
    """Start a watcher; yield its address and number, and what ends it and returns its time."""
    command = [EBBFLOW, "watch", str(folder), "--json"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None

        def end() -> float:
            child.terminate()
            return waited(child)

        try:
            yield json.loads(child.stdout.readline())["url"], child.pid, end
        finally:
            if child.returncode is None:
                child.kill()


# --- alone, asked, shown -------------------------------------------------------------------------


def alone(arguments: Sequence[str], folder: Path) -> LiveCost:
    """Run without a watcher."""
    return run_once(arguments, folder)


def asked(arguments: Sequence[str], folder: Path) -> LiveCost:
    """Run while a program asks a watcher as a page would."""
    over = threading.Event()
    with watcher(folder) as (url, _, end):
        asking = threading.Thread(target=_ask, args=(url, over))
        asking.start()
        try:
            spent = run_once(arguments, folder)
        finally:
            over.set()
            asking.join()
        return spent._replace(watcher=end())


def _ask(url: str, over: threading.Event) -> None:
    cursor: str | None = None
    while not over.is_set():
        name = "" if cursor is None else f"changes?after={cursor}"
        body = _got(url, name)
        if cursor is not None:
            cursor = json.loads(body)["cursor"]
        elif b'http-equiv="refresh"' not in body:  # no longer the page that waits
            cursor = ""
        over.wait(EVERY)


def _got(url: str, name: str) -> bytes:
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=120)) as connection:
        connection.request("GET", parts.path + name)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"the watcher answered {answer.status}")
        return answer.read()


def shown(arguments: Sequence[str], folder: Path) -> LiveCost:
    """Run while a browser shows the page."""
    # Only this contender needs it.
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with watcher(folder) as (url, pid, end), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        before = _others(pid)
        spent = run_once(arguments, folder)
        spent = spent._replace(browser=_others(pid) - before, watcher=end())
        browser.close()
        return spent


def _others(watching: int) -> float:
    """Return the processor time of what this process has started and still runs, but for one."""
    own = {os.getpid(), watching}
    return sum(processor_seconds(pid) for pid in family(os.getpid()) if pid not in own)


def _chromium() -> str:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        raise SystemExit(f"there is no {CHROMIUM[0]}: install it, or name other contenders")
    return found


CONTENDERS = {"alone": alone, "asked": asked, "shown": shown}


# --- the table -----------------------------------------------------------------------------------


def measured(name: str, contenders: Sequence[str], repeats: int) -> dict[str, list[LiveCost]]:
    """Return what each contender spent, in turns."""
    spent: dict[str, list[LiveCost]] = {contender: [] for contender in contenders}
    for repeat in range(repeats):
        for contender in contenders:
            with tempfile.TemporaryDirectory() as folder:
                once = CONTENDERS[contender](WORKLOADS[name], Path(folder) / "run")
            spent[contender].append(once)
            line = {"workload": name, "contender": contender, "repeat": repeat, **once._asdict()}
            print(json.dumps(line), file=sys.stderr, flush=True)
    return spent


def rows(name: str, spent: dict[str, list[LiveCost]]) -> Iterator[str]:
    """Yield a line of a table for each contender; the first is what others are compared with."""
    middles = {
        contender: LiveCost(*map(statistics.median, zip(*own, strict=True)))
        for contender, own in spent.items()
    }
    first = next(iter(middles.values()))
    for contender, middle in middles.items():
        seconds = [f"{value:.2f}" for value in middle]
        more = [f"{100 * (middle[k] / first[k] - 1):+.1f} %" for k in (0, 1)]
        yield f"| {' | '.join([name, contender, *seconds, *more])} |"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}")
    for name in options.workloads.split(","):
        spent = measured(name, options.contenders.split(","), options.repeats)
        for row in rows(name, spent):
            print(row, flush=True)


if __name__ == "__main__":
    main()
