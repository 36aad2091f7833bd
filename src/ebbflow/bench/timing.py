"""Seconds that can be compared: contenders take turns, and each is given by its median."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from ebbflow.core.memory import kept_memory, use_one_arena

REPEATS = 7

Contender = Callable[[], float]
"""Does its work once and returns the seconds it took."""


def timed(work: Callable[[], object]) -> Contender:
    """Return a contender from a function."""

    def contender() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return contender


def alternate(contenders: Mapping[str, Contender], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every contender; they take turns, so a disturbance meets all alike.

    >>> alternate({"a": lambda: 1.0, "b": lambda: 2.0}, 2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            found[name].append(contender())
    return found


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return how many times as long one takes as the other, by medians.

    >>> ratio([3.0, 1.0, 2.0], [4.0])
    0.5
    """
    return statistics.median(ours) / statistics.median(theirs)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute on so many threads in this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def as_in_a_run() -> Iterator[None]:
    """Compute under the settings of `ebbflow run`: one thread here, freed memory is kept."""
    use_one_arena()
    with threads(1), kept_memory():
        yield
