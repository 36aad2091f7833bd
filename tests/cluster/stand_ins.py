"""Workers in this process that stand in for those of a cluster, and may be lost at any time.

And a Ray that does nothing, for what a pool makes of nodes and errors.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

from ebbflow.cluster import wire
from ebbflow.cluster.chunks import Failed, Put
from ebbflow.cluster.dispatch import FetchError, WorkerLostError
from ebbflow.cluster.worker import LeafWorker
from ebbflow.core.types import Dataset

Loses = Callable[[int], bool]
"""Whether a worker is lost with the n-th task that is given out, or the n-th thing is fetched."""


class LocalWorkers:
    """Workers that compute when they are asked for results, the latest task first.

    What they are sent is pickled, as it is on the way to another process, except for what only
    Ray's own pickle can take.
    """

    def __init__(
        self,
        dataset: Dataset,
        workers: int = 2,
        loses: Loses = lambda _: False,
        joins: int = 0,
        cut_off: Loses = lambda _: False,
    ) -> None:
        self._stored: dict[int, Any] = {}
        self._numbers, self._tasks = count(1), count(1)
        self._workers = {number: self._worker() for number in range(workers)}
        self._next = workers
        self._given: dict[int, tuple[int, Any]] = {}
        self._loses, self._joins, self._cut_off = loses, joins, cut_off
        self._fetches = count(1)
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
        if self._cut_off(next(self._fetches)):
            self.losses += 1
            raise FetchError(f"the {put.kind} did not arrive")
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
        value = pickle.loads(pickle.dumps(self._workers[worker].run(task)))
        if isinstance(value, Failed) and isinstance(value.error, FetchError):
            raise WorkerLostError(str(value.error), crashed=True)
        return value

    def lost(self, worker: int) -> None:
        if worker in self._workers:
            self._workers.pop(worker).close()

    def absence(self) -> str:
        return "all were lost"

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


class StandInError(Exception):
    """Stands for Ray's errors."""


class StandInTaskError(StandInError):
    """Stands for Ray's errors of tasks."""


class StandInTimeoutError(StandInError):
    """Stands for Ray's errors of what does not arrive in time."""


class StandInRay:
    """A cluster for a pool: workers come up on a node, or do not, as its `answers` say.

    An answer is what the worker there tells of itself, the error with which it fails, or None if
    nothing is ever heard of it. Time passes only while somebody waits.
    """

    exceptions = SimpleNamespace(
        RayError=StandInError,
        RayTaskError=StandInTaskError,
        GetTimeoutError=StandInTimeoutError,
        ObjectLostError=StandInTimeoutError,
    )

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.started: list[str] = []
        self.killed: list[str] = []
        self.clock = 0.0
        self.util = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(
                NodeAffinitySchedulingStrategy=lambda node, soft: node
            )
        )

    # What the pool asks Ray for.

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": node, "NodeManagerAddress": f"at-{node}", "Alive": True, "Resources": _CORE}
            for node in self.answers
        ]

    def remote(self, cls: type) -> Any:
        return SimpleNamespace(options=lambda **chosen: _StandInActor(self, chosen))

    def put(self, value: Any) -> Any:
        return value

    def wait(self, handles: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], Any]:
        self.clock += timeout
        return [handle for handle in handles if self.answers[handle.node] is not None], []

    def get(self, handle: Any, timeout: float) -> Any:
        value = self.answers[handle.node] if handle.value is None else handle.value
        if isinstance(value, Exception):
            raise value
        return value

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.node)

    # What the pool asks the clock for.

    def monotonic(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


_CORE = {"CPU": 1.0}


class _StandInHandle(NamedTuple):
    """What will come of a call; None stands for the node's answer."""

    node: str
    value: Any = None


class _StandInActor:
    """An actor that answers what its node does, and returns its tasks undone."""

    def __init__(self, ray: StandInRay, chosen: Mapping[str, Any]) -> None:
        self._ray, self.node = ray, chosen["scheduling_strategy"]
        self.facts = SimpleNamespace(remote=lambda *_: _StandInHandle(self.node))
        self.run = SimpleNamespace(remote=lambda task: _StandInHandle(self.node, task))

    def remote(self, *_: object) -> _StandInActor:
        self._ray.started.append(self.node)
        return self
