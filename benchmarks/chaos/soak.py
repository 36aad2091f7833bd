"""A long run with devices that come and go, killed and resumed again and again, and undisturbed.

    python -m benchmarks.chaos.soak FOLDER LOG

resumes a run folder and notes after every session what the process has used: that is one life. The
machine may be busy with other things, which slows down processors as well. So processor time is
noted and not the clock, in units of a short run in memory that is done every few sessions, and
compared among sessions with as many devices.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chaos.kinds import results, wrong
from benchmarks.memory import status
from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.runs import records
from ebbflow.simulation.callbacks import Callback, SessionFinished

SESSIONS = 1000
EVERY = 5
BLOCK = 100
"""Sessions whose median is compared with that of others."""
LONG: dict[str, Any] = {
    "dataset": "digits",
    "methods": ["learned", "warm_start", "previous"],
    "seeds": [1],
    "rounds": 3,
    "partition.kind": "pool",
    "partition.devices": 10,
    "schedule.kind": "random",
    "engine.workers": 1,
}
KEPT: dict[str, dict[str, Any]] = {
    "20 sessions kept": {"history.keep": "last", "history.limit": 20},
    "all kept": {"methods": ["learned", "previous"]},
    "all kept, warm start": {"methods": ["warm_start"]},
}
"""What a run remembers. The warm start compares itself with every session that is kept."""
LIFE = (3.0, 40.0)
"""The shortest and the longest life in seconds, of which the first few go by with imports."""


class Note(NamedTuple):
    """What a process had used when a session was over, and the time of the session."""

    session: int
    devices: int
    seconds: float
    yardstick: float
    memory: int
    handles: int
    threads: int


class Meter(Callback):
    """Notes after every session but a life's first, which has the start-up in it."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("a", encoding="utf-8")
        self._before: float | None = None
        self._yardstick = 0.0

    def session_finished(self, event: SessionFinished) -> None:
        """Write a line."""
        now = time.process_time()
        if self._before is not None:
            handles, threads = (
                sum(1 for _ in Path(f"/proc/self/{what}").iterdir()) for what in ("fd", "task")
            )
            memory = status(os.getpid(), "VmRSS")
            if event.session.index % EVERY == 0 or not self._yardstick:
                self._yardstick = _short_run()
            times = now - self._before, self._yardstick
            note = Note(event.session.index, len(event.devices), *times, memory, handles, threads)
            self._log.write(json.dumps(note) + "\n")
            self._log.flush()
        self._before = time.process_time()


def _short_run() -> float:
    """Return the processor time of a short run, which has no folder and hardly a past."""
    config, data = _short()
    before = time.process_time()
    experiment.run(config, dataset=data)
    return time.process_time() - before


@cache
def _short() -> tuple[Config, Dataset]:
    config = configured(3, {"schedule.kind": "groups"})
    return config, datasets.load(config.dataset)


class Soaked(NamedTuple):
    """What became of a long run."""

    name: str
    minutes: float
    kills: int
    notes: list[Note]
    wrong: tuple[str, ...]


def configured(sessions: int, more: dict[str, Any]) -> Config:
    """Return the configuration of a long run."""
    layers = Layers()
    for key, value in {**LONG, "sessions": sessions, **more}.items():
        layers.add_key(key, value, "soak")
    return layers.config()


def undisturbed(name: str, folder: Path, config: Config) -> Soaked:
    """Let a run live once, to its end."""
    began = time.monotonic()
    log = folder.with_suffix(".log")
    records.claim_folder(folder, config.model_dump())
    code = _live(folder, log, None)
    found = f"exit code {code}" if code else wrong(folder, results(folder))
    return Soaked(name, _minutes(began), 0, _read(log), (found,) if found else ())


def disturbed(
    name: str,
    folder: Path,
    config: Config,
    expected: dict[str, str],
    minutes: float,
    life: tuple[float, float] = LIFE,
) -> Soaked:
    """Kill a run at random times and resume it, to its end and from the beginning, for so long.

    When the time is over the run is left alone.
    """
    began, draw = time.monotonic(), random.Random(name)
    log = folder.with_suffix(".log")
    kills, found = 0, []
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        records.claim_folder(folder, config.model_dump())
        code = -1
        while code < 0:
            seconds = draw.uniform(*life) if _minutes(began) < minutes else None
            code = _live(folder, log, seconds)
            kills += code < 0
        problem = f"exit code {code}" if code else wrong(folder, expected)
        if problem:
            found.append(problem)
        if _minutes(began) >= minutes or code:
            return Soaked(name, _minutes(began), kills, _read(log), tuple(found))


def _live(folder: Path, log: Path, seconds: float | None) -> int:
    """Start or resume a run; kill it after so many seconds; return its exit code."""
    command = [sys.executable, "-m", "benchmarks.chaos.soak", str(folder), str(log)]
    process = subprocess.Popen(command)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _minutes(began: float) -> float:
    return (time.monotonic() - began) / 60


def _read(log: Path) -> list[Note]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [Note(*json.loads(line)) for line in lines]


def spread(values: Sequence[float], block: int = BLOCK) -> float:
    """Return by how much the largest median of a block exceeds the smallest.

    >>> round(spread([100, 100, 110, 110], block=2), 6)
    0.1
    """
    starts = range(0, max(1, len(values) - block + 1), block)
    medians = [statistics.median(values[at : at + block]) for at in starts]
    return max(medians) / min(medians) - 1


def growth(values: Sequence[float], block: int = 3 * BLOCK) -> float:
    """Return by how much the median of the last values exceeds that of the first.

    Neighbours on a busy machine disturb the one as often as the other.

    >>> round(growth([1.0, 1.1, 0.9, 9.0, 1.2, 1.1, 1.3, 0.1], block=3), 6)
    0.1
    """
    last, first = values[-block:], values[:block]
    return statistics.median(last) / statistics.median(first) - 1


def paces(notes: Sequence[Note]) -> list[float]:
    """Return every session's time, divided by what is usual with as many devices.

    >>> paces([Note(n, 5 + n % 2, 3.0 + n % 2, 1.0, 0, 9, 2) for n in range(4)])
    [1.0, 1.0, 1.0, 1.0]
    """
    alike: dict[int, list[float]] = defaultdict(list)
    for note in notes:
        alike[note.devices].append(note.seconds / note.yardstick)
    usual = {devices: statistics.median(times) for devices, times in alike.items()}
    return [note.seconds / note.yardstick / usual[note.devices] for note in notes]


def soak(scratch: Path, sessions: int, minutes: float) -> Soaked:
    """Kill a long run and resume it for so many minutes."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    name, more = next(iter(KEPT.items()))
    config = configured(sessions, more)
    undisturbed(name, scratch / "whole", config)
    return disturbed(name, scratch / "run", config, results(scratch / "whole"), minutes)


def steady(scratch: Path, sessions: int) -> list[Soaked]:
    """Let long runs live undisturbed."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return [
        undisturbed(name, scratch / f"run-{number}", configured(sessions, more))
        for number, (name, more) in enumerate(KEPT.items())
    ]


def main() -> None:
    """Live once."""
    folder, log = map(Path, sys.argv[1:])
    experiment.resume(folder, callbacks=[Meter(log)])


if __name__ == "__main__":
    main()
