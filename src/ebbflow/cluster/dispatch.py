"""Who computes what: a queue of tasks, workers that take them in turn, and tasks of lost workers.

Tasks are handed out in order, a few to each worker, so that none of them waits for the driver. What
a lost worker had is handed out again, first of all. It is not the dispatcher's business what a task
is, nor how workers are reached (`Workers`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from ebbflow.core.errors import EbbflowError

DEPTH = 2
"""Tasks that a worker has at a time: one that it computes, and one to go on with."""
POLL = 0.5
"""Seconds after which it is looked whether workers have come or gone, if no task is finished."""
PATIENCE = 120.0
"""Seconds that a run waits for a worker if there is none."""
CRASHES = 4
"""How often a task may bring down workers whose nodes live on, before it is blamed for it."""
BROKE_DOWN = (
    "workers broke down one after another on this task, though their nodes are well; most likely "
    "they were out of memory: lower engine.workers or engine.block, or use nodes with more memory"
)
"""What is said of so many workers whose nodes live on, if nothing better is known."""


Worker = Any
"""What stands for a worker; it can be a key."""
Handle = Any
"""What stands for a task that a worker was given; it can be a key."""


class WorkerLostError(Exception):
    """A worker, or what it had computed, is gone; ``crashed`` if its node is still there.

    ``blame`` is what is said of `CRASHES` workers to which the same has happened with one task.
    """

    def __init__(self, reason: str, crashed: bool, blame: str = BROKE_DOWN) -> None:
        super().__init__(reason)
        self.crashed, self.blame = crashed, blame


class FetchError(Exception):
    """Something that was put somewhere for all workers did not arrive at one of them."""


class Workers(Protocol):
    """Workers somewhere, and how to reach them."""

    def ready(self) -> Sequence[Worker]:
        """Return the workers that can be given tasks now; looks for new ones."""
        ...

    def start(self, worker: Worker, task: Any) -> Handle:
        """Give a worker a task; return a handle for what will come of it."""
        ...

    def finished(self, handles: Sequence[Handle], seconds: float) -> Sequence[Handle]:
        """Wait until one of the tasks is finished or lost, or the time is over; return all such."""
        ...

    def result(self, handle: Handle) -> Any:
        """Return what came of a finished task, or raise `WorkerLostError`."""
        ...

    def lost(self, worker: Worker) -> None:
        """Forget a worker that is gone."""
        ...

    def absence(self) -> str:
        """Return why there is no worker, as far as is known."""
        ...


@dataclass(eq=False)
class Job:
    """A task and what came of it."""

    number: int
    task: Any
    what: str
    result: Any = None
    done: bool = False
    crashes: int = 0
    discarded: bool = field(default=False, repr=False)


class Dispatcher:
    """Hands tasks out to workers and collects what comes of them."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._waiting: deque[Job] = deque()
        self._running: dict[Handle, tuple[Job, Worker]] = {}
        self._numbers = count()
        self._alone_since: float | None = None
        self.recomputed = 0
        """Tasks that were given out again because a worker was lost."""

    def submit(self, task: Any, what: str) -> Job:
        """Add a task to the queue; ``what`` is what errors call it."""
        job = Job(next(self._numbers), task, what)
        self._waiting.append(job)
        self._hand_out()
        return job

    def wait(self, job: Job) -> Any:
        """Return what came of a task, as soon as it is done."""
        while not job.done:
            self._hand_out()
            self._collect()
        return job.result

    def discard(self, jobs: Sequence[Job]) -> None:
        """Forget tasks that nobody waits for any more."""
        for job in jobs:
            job.discarded, job.result = True, None
        self._waiting = deque(job for job in self._waiting if not job.discarded)

    def _hand_out(self) -> None:
        """Give tasks to workers that have few, those with the fewest first."""
        if not self._waiting:
            return
        ready = self.workers.ready()
        load = dict.fromkeys(ready, 0)
        for _, worker in self._running.values():
            if worker in load:
                load[worker] += 1
        while self._waiting and load:
            worker = min(load, key=lambda each: load[each])
            if load[worker] >= DEPTH:
                break
            job = self._waiting.popleft()
            try:
                handle = self.workers.start(worker, job.task)
            except WorkerLostError as lost:
                self._lose(worker, lost, [job])
                load.pop(worker)
                continue
            self._running[handle] = job, worker
            load[worker] += 1
        self._watch(bool(ready))

    def _collect(self) -> None:
        """Wait for a moment, and take what is finished."""
        if not self._running:
            time.sleep(POLL if self._waiting else 0)
            return
        for handle in self.workers.finished(list(self._running), POLL):
            if handle not in self._running:
                continue  # its worker was lost with another task
            job, worker = self._running.pop(handle)
            try:
                job.result = self.workers.result(handle)
                job.done = True
            except WorkerLostError as lost:
                self._lose(worker, lost, [job])

    def _lose(self, worker: Worker, lost: WorkerLostError, jobs: list[Job]) -> None:
        """Put the tasks of a lost worker back to the front of the queue, in their order."""
        # The first of its tasks is the one that it was at.
        for handle in [h for h, (_, whose) in self._running.items() if whose == worker]:
            jobs.append(self._running.pop(handle)[0])
        jobs.sort(key=lambda job: job.number)
        if lost.crashed:
            jobs[0].crashes += 1
            if jobs[0].crashes >= CRASHES:
                raise EbbflowError(f"{jobs[0].what}: {CRASHES} {lost.blame}") from lost
        self.workers.lost(worker)
        self.recomputed += len(jobs)
        again = sorted([*jobs, *self._waiting], key=lambda job: job.number)
        self._waiting = deque(job for job in again if not job.discarded)

    def _watch(self, anybody: bool) -> None:
        """Raise an error if there has been no worker for too long."""
        if anybody or self._running:
            self._alone_since = None
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > PATIENCE:
            raise EbbflowError(
                f"there has been no worker for {PATIENCE:.0f} s ({self.workers.absence()}): add "
                "nodes to the Ray cluster (`ray start --address=HEAD:6379`) and resume the run, or "
                "go on without one by `ebbflow resume DIR --engine vectorised`, with the same bits"
            )
