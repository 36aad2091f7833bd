"""Workers in this process that stand in for those of a cluster, and may be lost at any time."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from ebbflow.cluster import wire
from ebbflow.cluster.chunks import Put
from ebbflow.cluster.dispatch import WorkerLostError
from ebbflow.cluster.worker import LeafWorker
from ebbflow.core.types import Dataset

Loses = Callable[[int], bool]
"""Whether a worker is lost with the n-th task that is given out."""


class LocalWorkers:
    """Workers that compute when they are asked for results, the latest task first.

    What they are sent is pickled, as it is on the way to another process, except for what only
    Ray's own pickle can take.
    """

    def __init__(
        self, dataset: Dataset, workers: int = 2, loses: Loses = lambda _: False, joins: int = 0
    ) -> None:
        self._stored: dict[int, Any] = {}
        self._numbers, self._tasks = count(1), count(1)
        self._workers = {number: self._worker() for number in range(workers)}
        self._next = workers
        self._given: dict[int, tuple[int, Any]] = {}
        self._loses, self._joins = loses, joins
        self.losses = 0
        self.most_given = 0
        self.data = self.put("data", wire.packed(dataset))

    @property
    def threads(self) -> int:
        return 1

    def put(self, kind: str, value: Any) -> Put:
        number = next(self._numbers)
        portable = kind in ("data", "lanes", "models", "test")
        self._stored[number] = pickle.dumps(value) if portable else value
        return Put(kind, number, None)

    def _worker(self) -> LeafWorker:
        return LeafWorker(self._fetch, threads=1)

    def _fetch(self, put: Put) -> Any:
        value = self._stored[put.number]
        return pickle.loads(value) if isinstance(value, bytes) else value

    def ready(self) -> Sequence[int]:
        if not self._workers and self._joins:
            self._joins -= 1
            self._workers[self._next] = self._worker()
            self._next += 1
        return list(self._workers)

    def start(self, worker: int, task: Any) -> int:
        number = next(self._tasks)
        self._given[number] = worker, pickle.loads(pickle.dumps(task))
        self.most_given = max(self.most_given, len(self._given))
        return number

    def finished(self, handles: Sequence[int], seconds: float) -> Sequence[int]:
        return [max(handles)]  # the latest: nothing may depend on who is first

    def result(self, handle: int) -> Any:
        worker, task = self._given.pop(handle)
        if worker not in self._workers:
            raise WorkerLostError("gone", crashed=False)
        if self._loses(handle):
            self.losses += 1
            raise WorkerLostError("killed", crashed=False)
        return pickle.loads(pickle.dumps(self._workers[worker].run(task)))

    def lost(self, worker: int) -> None:
        if worker in self._workers:
            self._workers.pop(worker).close()

    def absence(self) -> str:
        return "all were lost"

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
