"""Which past sessions had most devices in common with the session that begins.

Sessions are compared by the share of common devices among all that were there in one of the two.
The devices of a long past lie end to end in one array, so that all sessions are compared at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_not

import numpy as np

from ebbflow.core.types import Indices, PastSession


class PastAttendance:
    """The devices of past sessions, each session's read once."""

    def __init__(self) -> None:
        self._known: list[PastSession] = []
        self._devices: Indices = np.empty(0, dtype=np.int64)
        self._ends: Indices = np.zeros(1, dtype=np.int64)

    def nearest(self, past: Sequence[PastSession], here: Sequence[int]) -> Iterator[PastSession]:
        """Yield past sessions, those with most in common with the devices here first.

        Of several that have as much in common, later ones come first.
        """
        self._read(past)
        found = np.isin(self._devices[: self._ends[-1]], np.array(here, dtype=np.int64))
        both = np.diff(np.concatenate([[0], found.cumsum()])[self._ends])
        shares = both / np.maximum(1, len(set(here)) + np.diff(self._ends) - both)
        numbers = [session.number for session in past]
        return (past[place] for place in np.lexsort((numbers, shares))[::-1])

    def _read(self, past: Sequence[PastSession]) -> None:
        """Take note of the devices of sessions that are not known yet."""
        if len(self._known) > len(past) or any(map(is_not, self._known, past)):
            self._known, self._ends = [], np.zeros(1, dtype=np.int64)  # some are no longer kept
        new = past[len(self._known) :]
        if not new:
            return
        rows = [np.array(session.devices, dtype=np.int64) for session in new]
        first, ends = self._ends[-1], self._ends[-1] + np.cumsum([len(row) for row in rows])
        if ends[-1] > len(self._devices):  # a quarter more than is needed: not each time anew
            grown = np.empty(ends[-1] + ends[-1] // 4, dtype=np.int64)
            grown[:first] = self._devices[:first]
            self._devices = grown
        self._devices[first : ends[-1]] = np.concatenate(rows)
        self._ends = np.concatenate([self._ends, ends])
        self._known = list(past)
