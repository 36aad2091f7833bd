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
from pathlib import Path
from typing import Any

from benchmarks.sweeps.cells import SingleRuns, outcome, planned, single_runs
from benchmarks.trials import Say
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.status import StatusReader

KILLS = 3
"""How often each worker is killed."""
LONGEST = 1 / 10
"""The part of the time of all single runs for which a worker computes before it is killed, at most.

Two or three workers take longer than three times that: all kills fall into the sweep."""


class KilledWorker(threading.Thread):
    """A worker that is killed again and again, and started once more each time."""

    def __init__(
        self, folder: Path, draw: random.Random, kills: int, longest: float, say: Say
    ) -> None:
        super().__init__(daemon=True)
        self._folder, self._draw, self._left, self._say = folder, draw, kills, say
        self._longest = longest
        self.kills: list[str] = []

    def run(self) -> None:
        while True:
            with subprocess.Popen(
                [sys.executable, "-m", "ebbflow", "sweep", "work", str(self._folder), "-q"],
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
                os.kill(child, signal.SIGKILL)
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
    """Kill each of two workers three times; then the same with a third one that joins late."""
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
    """Let two workers compute a sweep, killed three times each, and others join half-way."""
    longest = LONGEST * single.seconds
    workers = [
        KilledWorker(sweep.path, random.Random(draw.random()), KILLS, longest, say)
        for _ in range(2)
    ]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    reader = StatusReader(sweep)
    late = [KilledWorker(sweep.path, draw, 0, longest, say) for _ in range(joining)]
    while late and reader.read().counts["done"] < len(single.lines) // 3:
        time.sleep(0.2)
    for worker in late:
        worker.start()
        say("another worker joins")
    for worker in (*workers, *late):
        worker.join()
    left = [cell.name for cell in sweep.plan().cells if Claims(sweep.path).is_held(cell.name)]
    return {
        "workers": 2 + joining,
        "killed": sorted(text for worker in workers for text in worker.kills),
        "seconds": round(time.monotonic() - began),
        **outcome(sweep, single),
        "locks still held": len(left),
    }
