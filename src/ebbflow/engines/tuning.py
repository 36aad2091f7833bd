"""Chooses how many devices train together by timing the first blocks of a run.

Small blocks stay in the cache, large ones spread the overhead of each call; the best size depends
on the model, the batch, the number of lanes and the machine. The result does not depend on it, so
the first blocks simply have different sizes.
"""

from __future__ import annotations

import statistics
import threading

TRIALS = 3  # timed blocks of each size before the choice is made


class BlockTuner:
    """Tries each size a few times, then settles on the one that took least time per sample.

    >>> tuner = BlockTuner(most=4)
    >>> tuner.sizes
    (1, 2, 4)
    >>> for _ in range(9):
    ...     size = tuner.next()
    ...     tuner.took(size, samples=10 * size, seconds={1: 3.0, 2: 4.0, 4: 9.0}[size])
    >>> tuner.next()
    2
    """

    def __init__(self, most: int) -> None:
        self.sizes = tuple(1 << n for n in range(max(1, most).bit_length()))
        self._turn = 0
        self._times: dict[int, list[float]] = {size: [] for size in self.sizes}
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return the size of the next block."""
        with self._lock:
            untried = [size for size in self.sizes if len(self._times[size]) < TRIALS]
            if untried:
                self._turn += 1
                return untried[self._turn % len(untried)]
            return min(self.sizes, key=lambda size: statistics.median(self._times[size]))

    def took(self, size: int, samples: int, seconds: float) -> None:
        """Record how long a block of this size took for so many samples."""
        with self._lock:
            if size in self._times and len(self._times[size]) < TRIALS and samples:
                self._times[size].append(seconds / samples)
