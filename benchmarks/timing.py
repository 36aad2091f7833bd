"""Timing that allows comparison: contenders take turns, and medians are compared."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from ebbflow.core.malloc import kept_memory, use_one_arena

Contender = Callable[[], float]
"""Does its work once and returns the seconds it took."""


def timed(work: Callable[[], object]) -> Contender:
    """Return a contender that times a function."""

    def contender() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return contender


def alternate(contenders: Mapping[str, Contender], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each contender, run in turns so that disturbances affect all alike.

    >>> alternate({"a": lambda: 1.0, "b": lambda: 2.0}, 2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            seconds[name].append(contender())
    return seconds


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """Return the ratio of two medians.

    >>> ratio([3.0, 1.0, 2.0], [4.0])
    0.5
    """
    return statistics.median(numerator) / statistics.median(denominator)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use this many threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def as_in_a_run() -> Iterator[None]:
    """Apply the settings of `ebbflow run`: one torch thread, and freed memory is kept."""
    use_one_arena()
    with threads(1), kept_memory():
        yield
