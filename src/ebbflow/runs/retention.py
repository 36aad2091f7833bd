"""Which past sessions a method keeps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ebbflow.core.types import PastSession

Retention = Callable[[Sequence[PastSession]], Sequence[int]]
"""From the entries, oldest first, to the places of those to keep, in order."""

EXHAUSTIVE = 20_000  # try every subset up to this many; beyond it drop entries one at a time


def keep_all(entries: Sequence[PastSession]) -> Sequence[int]:
    """Keep everything."""
    return range(len(entries))


def keep_last(limit: int) -> Retention:
    """Return the rule that keeps the newest ``limit`` entries."""
    return lambda entries: list(range(len(entries)))[-limit:]


def keep_diverse(limit: int, distance: Callable[[PastSession, PastSession], float]) -> Retention:
    """Return the rule that keeps the ``limit`` entries whose smallest distance is largest.

    Among equally diverse choices the one with the newest entries wins, so that a repeated session
    replaces its older twin. If there are few subsets, all are tried, which is exact; a history that
    grows by one entry per session never needs more. Otherwise, one of the closest pair is dropped
    repeatedly.
    """

    def keep(entries: Sequence[PastSession]) -> list[int]:
        count = len(entries)
        if count <= limit:
            return list(range(count))
        apart = np.full((count, count), math.inf)
        for i, j in itertools.combinations(range(count), 2):
            apart[i, j] = apart[j, i] = distance(entries[i], entries[j])
        if math.comb(count, limit) <= EXHAUSTIVE:
            subsets = [list(kept) for kept in itertools.combinations(range(count), limit)]
            return max(subsets, key=lambda kept: (_spread(apart, kept), kept[::-1]))
        kept = list(range(count))
        while len(kept) > limit:
            kept.pop(_most_redundant(apart[np.ix_(kept, kept)]))
        return kept

    return keep


def _spread(apart: np.ndarray[tuple[int, int], np.dtype[np.float64]], kept: Sequence[int]) -> float:
    """Return the smallest distance among the kept entries."""
    return float(apart[np.ix_(kept, kept)].min())


def _most_redundant(apart: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> int:
    """Return which of the closest pair to drop: the one nearer to the rest, or else the older."""
    i, j = divmod(int(apart.argmin()), len(apart))
    nearest_i = np.delete(apart[i], j).min(initial=math.inf)
    nearest_j = np.delete(apart[j], i).min(initial=math.inf)
    if nearest_i == nearest_j:
        return min(i, j)
    return i if nearest_i < nearest_j else j
