"""Results of workers in order, of which only a few are computed ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_turn(
    pool: Executor, work: Callable[[Task], Result], tasks: Iterable[Task], ahead: int
) -> Iterator[Result]:
    """Yield the results of the tasks in order; at most so many are under way or wait to be taken.

    Uploads of many devices would fill the memory if their sum did not keep up with the workers.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
