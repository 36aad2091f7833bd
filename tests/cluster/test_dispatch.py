"""Tasks are all done, in any order, a few at a time, whichever workers are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.cluster.dispatch import BROKE_DOWN, DEPTH, Dispatcher, WorkerLostError
from ebbflow.core.errors import EbbflowError


class Fickle:
    """Workers that square numbers. Some tasks bring their worker down, so many times."""

    def __init__(
        self,
        workers: int,
        deaths: dict[int, int],
        crashed: bool = False,
        blame: str = BROKE_DOWN,
    ) -> None:
        self._alive = list(range(workers))
        self._next, self._crashed, self._blame = workers, crashed, blame
        self._deaths = Counter(deaths)
        self._given: dict[int, tuple[int, int]] = {}
        self.most: Counter[int] = Counter()
        self.order: list[int] = []

    def ready(self) -> Sequence[int]:
        if not self._alive:  # another one joins
            self._alive.append(self._next)
            self._next += 1
        return list(self._alive)

    def start(self, worker: int, task: int) -> int:
        handle = len(self.order)
        self.order.append(task)
        self._given[handle] = worker, task
        busy = Counter(whose for whose, _ in self._given.values())
        self.most |= busy
        return handle

    def finished(self, handles: Sequence[int], seconds: float) -> Sequence[int]:
        # Those of one worker come one after another.
        first: dict[int, int] = {}
        for handle in handles:
            first.setdefault(self._given[handle][0], handle)
        return list(first.values())

    def result(self, handle: int) -> int:
        _, task = self._given.pop(handle)
        if self._deaths[task] > 0:
            self._deaths[task] -= 1
            raise WorkerLostError("it died", self._crashed, self._blame)
        return task**2

    def lost(self, worker: int) -> None:
        self._alive.remove(worker)
        self._given = {h: given for h, given in self._given.items() if given[0] != worker}

    def absence(self) -> str:
        return "nobody"


@given(
    tasks=st.lists(st.integers(0, 30), max_size=25, unique=True),
    workers=st.integers(1, 4),
    deaths=st.dictionaries(st.integers(0, 30), st.integers(1, 3), max_size=6),
)
def test_every_task_is_done_whoever_dies(
    tasks: list[int], workers: int, deaths: dict[int, int]
) -> None:
    fickle = Fickle(workers, deaths)
    dispatcher = Dispatcher(fickle)
    jobs = [dispatcher.submit(task, str(task)) for task in tasks]
    assert [dispatcher.wait(job) for job in jobs] == [task**2 for task in tasks]
    assert max(fickle.most.values(), default=0) <= DEPTH
    # A task is given out once, and once more for each time that its worker was lost.
    assert len(fickle.order) == len(tasks) + dispatcher.recomputed


def test_what_a_lost_worker_had_is_handed_out_before_anything_new() -> None:
    fickle = Fickle(1, {0: 1})
    dispatcher = Dispatcher(fickle)
    jobs = [dispatcher.submit(task, str(task)) for task in range(5)]
    for job in jobs:
        dispatcher.wait(job)
    assert fickle.order == [0, 1, 0, 1, 2, 3, 4]


def test_work_is_spread_before_it_is_piled_up() -> None:
    dispatcher = Dispatcher(fickle := Fickle(3, {}))
    for task in range(3):
        dispatcher.submit(task, str(task))
    assert set(fickle.most.values()) == {1}


def test_a_task_that_brings_down_one_worker_after_another_is_blamed() -> None:
    dispatcher = Dispatcher(Fickle(2, {7: 99}, crashed=True))
    job = dispatcher.submit(7, "session 1, round 2, devices 3 to 6")
    with pytest.raises(EbbflowError, match=r"^session 1, round 2, devices 3 to 6: 4 workers .*mem"):
        dispatcher.wait(job)


def test_a_task_that_no_worker_can_be_sent_has_another_remedy() -> None:
    fickle = Fickle(2, {7: 99}, crashed=True, blame="workers were cut off: see to the network")
    dispatcher = Dispatcher(fickle)
    job = dispatcher.submit(7, "round 2")
    with pytest.raises(EbbflowError, match=r"^round 2: 4 workers were cut off: see to the netw"):
        dispatcher.wait(job)


def test_nodes_that_are_killed_are_nobodys_fault() -> None:
    dispatcher = Dispatcher(Fickle(2, {7: 20}))
    assert dispatcher.wait(dispatcher.submit(7, "seven")) == 49


def test_what_nobody_waits_for_is_not_computed() -> None:
    dispatcher = Dispatcher(fickle := Fickle(1, {}))
    jobs = [dispatcher.submit(task, str(task)) for task in range(6)]
    dispatcher.discard(jobs[3:])
    assert dispatcher.wait(dispatcher.submit(9, "nine")) == 81
    assert fickle.order == [0, 1, 2, 9]


def test_a_run_without_workers_waits_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 50))
    slept: list[float] = []
    monkeypatch.setattr("ebbflow.cluster.dispatch.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("ebbflow.cluster.dispatch.time.sleep", slept.append)

    class Nobody(Fickle):
        def ready(self) -> Sequence[Any]:
            return []

    dispatcher = Dispatcher(Nobody(0, {}))
    job = dispatcher.submit(1, "one")
    with pytest.raises(EbbflowError, match=r"no worker for 120 s \(nobody\): add nodes"):
        dispatcher.wait(job)
    assert len(slept) >= 2
