"""Kills workers by SIGKILL at random, and compares what comes out with single runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.sweeps.cells import (
    Interruption,
    SingleRuns,
    interruption,
    outcome,
    planned,
    single_runs,
)
from benchmarks.trials import Say
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.status import StatusReader

KILLS = 3
"""How often each worker is killed."""
LONGEST = 1 / 10
"""The part of the time of all single runs for which a worker computes before it is killed, at most.

Two or three workers take longer than three times that: all kills fall into the sweep."""
LATE = 1 / 4
"""The part of the cells that are done when another worker joins."""
LATE_LONGEST = LONGEST / 3
"""As `LONGEST`, for a worker that joins late: its kills fall into what is left of the sweep."""


class KilledWorker(threading.Thread):
    """A worker that is killed again and again, and started once more each time."""

    def __init__(self, sweep: SweepFolder, draw: random.Random, longest: float, say: Say) -> None:
        super().__init__(daemon=True)
        self._sweep, self._draw, self._left, self._say = sweep, draw, KILLS, say
        self._longest = longest
        self.kills: list[str] = []
        self.interruptions: list[Interruption] = []

    def run(self) -> None:
        while True:
            with subprocess.Popen(
                [sys.executable, "-m", "ebbflow", "sweep", "work", str(self._sweep.path), "-q"],
                start_new_session=True,
            ) as worker:
                if not self._left or not self._killed(worker):
                    worker.wait()
                    return  # it has ended by itself: all cells are done, or have failed

    def _killed(self, worker: subprocess.Popen[bytes]) -> bool:
        """Kill a worker at some moment, alone or with the cell that it computes."""
        while not (children := children_of(worker.pid)):
            if worker.poll() is not None:
                return False
            time.sleep(0.02)
        time.sleep(self._draw.uniform(0.0, self._longest))
        if worker.poll() is not None:
            return False
        children = children_of(worker.pid)
        with_cell = self._draw.random() < 0.5
        os.kill(worker.pid, signal.SIGKILL)
        if with_cell:
            for child in children:
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(child, signal.SIGKILL)
        if found := interruption(self._sweep, children):
            self.interruptions.append(found)
        self._left -= 1
        self.kills.append("worker and cell" if with_cell else "worker")
        self._say(f"killed {self.kills[-1]} ({self._left} more)")
        return True


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kills(say: Say) -> list[dict[str, Any]]:
    """Kill each of two workers three times; then each of three, one of which joins late."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ebbflow-sweeps-") as parent:
        sweep = planned(Path(parent) / "plain")
        single = single_runs(sweep.plan(), Path(parent) / "single", say)
        for joining in (0, 1):
            folder = Path(parent) / f"sweep{joining}"
            rows.append(one_trial(planned(folder), single, joining, random.Random(joining), say))
            say(str(rows[-1]))
    return rows


def one_trial(
    sweep: SweepFolder, single: SingleRuns, joining: int, draw: random.Random, say: Say
) -> dict[str, Any]:
    """Let two workers compute a sweep, and others that join late; each is killed three times."""

    def killed(share: float) -> KilledWorker:
        return KilledWorker(sweep, random.Random(draw.random()), share * single.seconds, say)

    workers = [killed(LONGEST) for _ in range(2)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    reader = StatusReader(sweep)
    late = [killed(LATE_LONGEST) for _ in range(joining)]
    while late and reader.read().counts["done"] < LATE * len(single.lines):
        time.sleep(0.2)
    for worker in late:
        worker.start()
        say("another worker joins")
    for worker in (*workers, *late):
        worker.join()
    left = [cell.name for cell in sweep.plan().cells if Claims(sweep.path).is_held(cell.name)]
    every = [*workers, *late]
    return {
        "workers": len(every),
        "killed": sorted(text for worker in every for text in worker.kills),
        "killed of those that joined late": sum(len(worker.kills) for worker in late),
        "seconds": round(time.monotonic() - began),
        **outcome(sweep, single, [cut for worker in every for cut in worker.interruptions]),
        "locks still held": len(left),
    }
