"""Chooses how many devices train together by timing the first blocks of a run.

Small blocks stay in the cache, large ones spread the overhead of each call; the best size depends
on the model, the batch, the number of lanes and the machine. The result does not depend on it, so
the first blocks simply have different sizes. While they ran, something else may have kept the
machine busy: so all sizes are tried again from time to time, ever more rarely.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise

TRIALS = 2  # timed blocks of each size before the first choice is made
AGAIN = 4  # after so many choices, and then each time after four times as many, comes one more


class BlockTuner:
    """Tries each size a few times, and settles on the one that took least time per sample.

    Later it tries all of them once more, ever more rarely, and may settle on another one.

    >>> tuner = BlockTuner(most=8)
    >>> tuner.sizes
    (1, 2, 4, 8)
    >>> for _ in range(6):
    ...     size = tuner.next(share=5)
    ...     tuner.took(size, samples=10 * size, seconds={1: 3.0, 2: 4.0, 4: 9.0}[size])
    >>> tuner.next(share=5)
    2
    >>> tuner.next(share=10)
    8
    """

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.sizes = tuple(1 << n for n in range(self.most.bit_length()))
        self._turn = 0
        self._choices = 0
        self._trials = TRIALS  # that each size is to have by now
        self._times: dict[int, list[float]] = {size: [] for size in self.sizes}
        self._lock = threading.Lock()

    def next(self, share: int) -> int:
        """Return the size of the next block, where a worker has so many devices to train.

        Larger blocks would leave other workers without any. They are tried when there are more
        devices.
        """
        with self._lock:
            untried = self.untried(share)
            if untried:
                self._turn += 1
                return untried[self._turn % len(untried)]
            self._choices += 1
            if self._choices == AGAIN ** (self._trials - TRIALS + 1):
                self._trials += 1
            # By the best of its times: what disturbs a block only makes it longer.
            return min(self._sizes(share), key=lambda size: min(self._times[size]))

    def untried(self, share: int) -> list[int]:
        """Return the sizes that are still to be tried, of those that fit into a worker's share."""
        return [size for size in self._sizes(share) if len(self._times[size]) < self._trials]

    def lengths(self, devices: int, workers: int) -> Iterator[int]:
        """Yield the lengths of the blocks that so many devices are cut into for so many workers.

        Sizes are tried as they are. Around the one that was chosen, blocks are made equal, so that
        all workers are ready at the same time.
        """
        share = -(-devices // workers)
        while devices and self.untried(share):
            size = min(self.next(share), devices)
            yield size
            devices -= size
        if devices:
            yield from even_lengths(devices, workers, self.next(share), self.most)

    def took(self, size: int, samples: int, seconds: float) -> None:
        """Record how long a block of this size took for so many samples."""
        with self._lock:
            if size in self._times and len(self._times[size]) < self._trials and samples:
                self._times[size].append(seconds / samples)

    def _sizes(self, share: int) -> list[int]:
        return [size for size in self.sizes if size <= max(1, share)]


def even_lengths(devices: int, workers: int, size: int, most: int) -> list[int]:
    """Return lengths of blocks near a size, and not beyond the most, with equal work for workers.

    >>> even_lengths(20, workers=2, size=8, most=100)
    [10, 10]
    >>> even_lengths(20, workers=2, size=8, most=8)
    [5, 5, 5, 5]
    """
    turns = max(1, round(devices / (workers * size)), -(-devices // (workers * most)))
    blocks = min(devices, turns * workers)
    ends = [devices * block // blocks for block in range(blocks + 1)]
    return [end - begin for begin, end in pairwise(ends)]
