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

    >>> tuner = BlockTuner(most=8)
    >>> tuner.sizes
    (1, 2, 4, 8)
    >>> for _ in range(9):
    ...     size = tuner.next(share=5)
    ...     tuner.took(size, samples=10 * size, seconds={1: 3.0, 2: 4.0, 4: 9.0}[size])
    >>> tuner.next(share=5)
    2
    >>> tuner.next(share=10)
    8
    """

    def __init__(self, most: int) -> None:
        self.sizes = tuple(1 << n for n in range(max(1, most).bit_length()))
        self._turn = 0
        self._times: dict[int, list[float]] = {size: [] for size in self.sizes}
        self._lock = threading.Lock()

    def next(self, share: int) -> int:
        """Return the size of the next block, where a worker has so many devices to train.

        Larger blocks would leave other workers without any. They are tried when there are more
        devices.
        """
        with self._lock:
            sizes = [size for size in self.sizes if size <= max(1, share)]
            untried = [size for size in sizes if len(self._times[size]) < TRIALS]
            if untried:
                self._turn += 1
                return untried[self._turn % len(untried)]
            return min(sizes, key=lambda size: statistics.median(self._times[size]))

    def took(self, size: int, samples: int, seconds: float) -> None:
        """Record how long a block of this size took for so many samples."""
        with self._lock:
            if size in self._times and len(self._times[size]) < TRIALS and samples:
                self._times[size].append(seconds / samples)
