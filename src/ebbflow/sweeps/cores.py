"""Which processor cores a worker uses: engines take a thread for each core that they may use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress


def shares_of_cores(count: int) -> list[list[int]]:
    """Return the processor cores of each of so many workers; none where they cannot be bound."""
    if not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(count)]
    cores = sorted(os.sched_getaffinity(0))
    return list(_shares(cores, count))


def _shares(cores: Sequence[int], count: int) -> Iterator[list[int]]:
    """Yield equal shares of cores, neighbours together; with too few, workers share them.

    >>> list(_shares([0, 1, 2, 3, 4], 2)), list(_shares([0, 1], 3))
    ([[0, 1, 2], [3, 4]], [[0], [1], [0]])
    """
    if count > len(cores):
        yield from ([cores[place % len(cores)]] for place in range(count))
        return
    size, rest = divmod(len(cores), count)
    first = 0
    for place in range(count):
        last = first + size + (place < rest)
        yield list(cores[first:last])
        first = last


def least_used(count: int, used: Sequence[int]) -> list[int]:
    """Return so many of this process's cores, those first that others use least."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (list(used).count(core), core))
    return sorted(cores[:count])


def bind_to(cores: Sequence[int]) -> None:
    """Let this process and its children use these cores only."""
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # a core that has been taken away: the others will do
            os.sched_setaffinity(0, cores)
