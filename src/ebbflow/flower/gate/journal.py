"""What a server says about strangers, without letting them fill its disk or its terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from ebbflow.core.names import printable, shortened

_LONGEST_LINE = 300


class Journal:
    r"""Lines on stderr: each on one line, shortened, escaped, and not too many of them.

    ``burst`` lines may come at once, and then one every ``seconds``. What had to be left out is
    counted, and the next line says how many.

    >>> now = [0.0]
    >>> journal = Journal(1, 1.0, clock=lambda: now[0], write=print, stamp=lambda: "-")
    >>> journal.say("a\nb"); journal.say("c"); now[0] = 1.0; journal.say("d")
    - a\nb
    - d (1 line before this one was left out)
    """

    def __init__(
        self,
        burst: int = 20,
        seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] | None = None,
        stamp: Callable[[], str] | None = None,
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._write = _to_stderr if write is None else write
        self._stamp = _now if stamp is None else stamp
        self._credit = float(burst)
        self._counted_at = clock()
        self._left_out = 0

    def say(self, text: str) -> None:
        """Write a line, or count it as left out."""
        now = self._clock()
        earned = (now - self._counted_at) / self._seconds
        self._credit = min(self._burst, self._credit + earned)
        self._counted_at = now
        if self._credit < 1:
            self._left_out += 1
            return
        self._credit -= 1
        self._put(shortened(printable(text), _LONGEST_LINE))

    def close(self) -> None:
        """Say how many lines were left out last."""
        if self._left_out:
            self._put("the end")

    def _put(self, text: str) -> None:
        if self._left_out:
            lines = "line" if self._left_out == 1 else "lines"
            were = "was" if self._left_out == 1 else "were"
            text += f" ({self._left_out} {lines} before this one {were} left out)"
            self._left_out = 0
        self._write(f"{self._stamp()} {text}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
