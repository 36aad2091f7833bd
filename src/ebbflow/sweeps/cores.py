"""Which processor cores a worker uses: engines take a thread for each core that they may use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path


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


GPUS = Path("/proc/driver/nvidia/gpus")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus() -> list[str]:
    """Return the graphics processors that this process may use, as CUDA calls them."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    try:
        return [str(number) for number, _ in enumerate(GPUS.iterdir())]
    except OSError:  # there is none, or not from this maker
        return []


def shares_of_gpus(count: int) -> list[str | None]:
    """Return one graphics processor for each of so many workers; with too few, they share them."""
    found = gpus()
    return [found[place % len(found)] if found else None for place in range(count)]


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
