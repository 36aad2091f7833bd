"""Keeps work that is done again and again to a small share of a processor's time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 100
"""How many times as long as something took is waited until it is done again: 1 % of a core."""


class Pace:
    """How often something may be done.

    ``least`` and ``most`` are seconds to wait in any case, and ``first`` those to wait at most
    after the first time, which may import libraries.
    """

    def __init__(self, least: float, most: float = math.inf, *, first: float) -> None:
        self._least, self._most = least, most
        self._ended, self._wait = -math.inf, least
        self._next_most = first

    def ready(self, haste: float = 1.0) -> bool:
        """Whether it may be done again; with haste, after so many times less."""
        return time.monotonic() >= self._ended + self._wait / haste

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the processor time of what is done within."""
        began = time.process_time()
        try:
            yield
        finally:
            took = time.process_time() - began
            self._wait = min(max(SHARE * took, self._least), self._next_most)
            self._next_most = self._most
            self._ended = time.monotonic()
