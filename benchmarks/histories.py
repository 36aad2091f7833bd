"""A thousand sessions under every start: the time of a session as the history grows, and memory.

Every start has two processes of the same run, which keep all past sessions in a run folder. One is
held when it has many sessions behind it, the other when it has few; from then on they take turns,
session by session, so that disturbances of the machine affect both alike. Where a process's memory
happens to lie makes it faster or slower than another by up to a tenth, so there are several such
pairs, and the median of their ratios counts.

The run folders are in memory where there is such a file system. On a disk the time of a session
also depends on the disk's past: ext4 without a journal, for instance, looks at every file that was
deleted in the last minutes before it makes a new one (`recently_deleted` in the kernel), and the
checkpoint before the last is deleted after every session.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from benchmarks.memory import anonymous
from benchmarks.results import Measurement, Requirement, Suite
from benchmarks.timing import as_in_a_run, ratio
from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core import stacks
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.environment import machine, versions
from ebbflow.simulation.callbacks import Callback, SessionFinished
from ebbflow.starts import STARTS

SESSIONS, EARLY, TURNS = 1_000, 50, 50
PAIRS = 5
ROUNDS = 10  # half of the demo's: what a session costs besides its training shows the more
CHECKED = 60  # sessions of the runs whose losses are compared
TOLERANCE = 1e-4  # largest allowed difference between losses
BOUND = 1.1
IN_MEMORY = Path("/dev/shm")


class SessionSpent(NamedTuple):
    """What one session took: seconds by the clock and of the processor, and the memory after it."""

    session: int
    seconds: float
    processor: float
    memory: int


def configuration(start: str, sessions: int) -> Config:
    """Return the demo with one start, one seed and many short sessions, all of which are kept."""
    layers = Layers()
    layers.add_preset("demo")
    for key, value in {
        "methods": [start],
        "seeds": [100],
        "sessions": sessions,
        "rounds": ROUNDS,
        "engine.workers": 1,
    }.items():
        layers.add_key(key, value, "bench")
    return layers.config()


class _Turns(Callback):
    """Tells of every session, and from one session on waits after each until it may go on."""

    def __init__(self, connection: Connection, hold_from: int) -> None:
        self._connection, self._hold_from = connection, hold_from
        self._began = time.perf_counter(), time.process_time()

    def session_finished(self, event: SessionFinished) -> None:
        """Tell what the session took; it is saved by now."""
        seconds = time.perf_counter() - self._began[0]
        processor = time.process_time() - self._began[1]
        memory = anonymous(os.getpid())
        self._connection.send(SessionSpent(event.session.index, seconds, processor, memory))
        if event.session.index >= self._hold_from:
            self._connection.recv()
        self._began = time.perf_counter(), time.process_time()


def _run(start: str, sessions: int, hold_from: int, connection: Connection, out: Path) -> None:
    with as_in_a_run():
        experiment.run(
            configuration(start, sessions), out, callbacks=[_Turns(connection, hold_from)]
        )


class _Run:
    """A run in another process that is held after a session."""

    def __init__(self, start: str, sessions: int, hold_from: int, out: Path) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(start, sessions, hold_from, theirs, out), daemon=True
        )
        self._process.start()
        theirs.close()
        self.spent: list[SessionSpent] = []
        while not self.spent or self.spent[-1].session < hold_from:
            self._receive()

    def go_on(self) -> None:
        """Let it compute one more session."""
        self._connection.send(None)
        self._receive()

    def _receive(self) -> None:
        try:
            self.spent.append(self._connection.recv())
        except EOFError:
            raise EbbflowError("histories: a run has ended before its time; try it alone") from None

    def end(self) -> None:
        """End the process: the session after the last one is of no interest."""
        self._process.terminate()
        self._process.join()


def losses(start: str, sessions: int, long: int) -> list[float]:
    """Return the losses of a run that reads more than so many past sessions in stacks."""
    before = stacks.LONG
    stacks.LONG = long
    try:
        return [each.loss for each in experiment.run(configuration(start, sessions)).rounds]
    finally:
        stacks.LONG = before


def difference(start: str, sessions: int) -> float:
    """Return how far losses lie apart if past sessions are read in stacks and one by one."""
    stacked, one_by_one = (losses(start, sessions, long) for long in (2, sessions))
    return max(abs(a - b) for a, b in zip(stacked, one_by_one, strict=True))


def measured(
    start: str, sessions: int, early: int, turns: int
) -> tuple[list[SessionSpent], list[SessionSpent]]:
    """Return what sessions took early in the history, and all of them."""
    where = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench-", dir=where) as scratch, ExitStack() as stack:
        long = _Run(start, sessions + 1, sessions - turns, Path(scratch, "long"))
        stack.callback(long.end)
        short = _Run(start, early + turns, early - 1, Path(scratch, "short"))
        stack.callback(short.end)
        for _ in range(turns):
            short.go_on()
            long.go_on()
    return short.spent[-turns:], long.spent


def histories(
    repeats: int,
    peers: Path | None = None,
    starts: Sequence[str] = tuple(STARTS),
    sizes: tuple[int, int, int, int] = (SESSIONS, EARLY, TURNS, CHECKED),
    pairs: int = PAIRS,
) -> Suite:
    """Time sessions early and late in a long history.

    Args:
        repeats: Not used: so many sessions are timed one by one.
        peers: Not used: no peer has sessions.
        starts: The starts.
        sizes: Sessions of the long history, the first session that is timed in the short one, how
            many are timed in each, and the sessions of the runs whose losses are compared.
        pairs: How many pairs of such processes there are.
    """
    sessions, early, turns, checked = sizes
    measurements: list[Measurement] = []
    requirements: list[Requirement] = []
    for start in starts:
        apart = difference(start, checked)
        if not apart <= TOLERANCE:
            raise EbbflowError(
                f"histories: the losses of {start} differ by {apart:.1e}, more than {TOLERANCE:g}, "
                "so that nothing is timed"
            )
        timed = [measured(start, sessions, early, turns) for _ in range(pairs)]
        each_pair = [(whole[-turns:], first) for first, whole in timed]
        last = [each for of_pair, _ in each_pair for each in of_pair]
        first = [each for _, of_pair in each_pair for each in of_pair]
        whole = timed[-1][1]
        names = (
            f"{start}, from session {early}",
            f"{start}, the last {turns} of {sessions:,}",
        )
        for name, spent, note in zip(names, (first, last), ("", by_hundreds(whole)), strict=True):
            measurements.append(
                Measurement(
                    name=name,
                    seconds=[each.seconds for each in spent],
                    difference=apart if note else None,
                    memory=spent[-1].memory,
                    note=note,
                )
            )
        requirements += [
            Requirement(
                what=f"{start}, {what} of a session, last beside early",
                value=statistics.median(
                    ratio([getattr(s, field) for s in late], [getattr(s, field) for s in soon])
                    for late, soon in each_pair
                ),
                bound=BOUND,
            )
            for field, what in (("processor", "processor time"), ("seconds", "time"))
        ]
        requirements.append(
            Requirement(
                what=f"{start}, memory, last beside early",
                value=statistics.median(
                    late[-1].memory / max(1, soon[-1].memory) for late, soon in each_pair
                ),
                bound=BOUND,
            )
        )
    return Suite(
        name="histories",
        title=f"{sessions:,} sessions, all of them kept",
        measurements=measurements,
        requirements=requirements,
        notes=[
            f"The demo's devices, one start, one seed, {ROUNDS} rounds a session on one worker, in "
            "a run folder in memory: training, the choice of the start, records, history and "
            "checkpoint. "
            "Sessions early and late in it take turns in two processes, and the medians of "
            f"their times are compared; of {pairs} such pairs the median ratio counts, for where a "
            "process's memory lies makes it faster or slower by up to a tenth. The difference is "
            f"between the losses of {checked} sessions whose past is read in stacks, and one by "
            "one."
        ],
        machine=machine(),
        versions=versions(),
    )


def by_hundreds(spent: Sequence[SessionSpent]) -> str:
    """Return the median processor time of every hundred sessions, in words."""
    parts = [spent[first : first + 100] for first in range(0, len(spent), 100)]
    each = [statistics.median(one.processor for one in part) for part in parts]
    return f"processor, by hundreds: {', '.join(f'{1000 * time:.0f}' for time in each)} ms"
