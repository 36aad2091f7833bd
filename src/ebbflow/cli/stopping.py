"""Ending a run by a signal: once to save the last finished round, twice to leave at once.

Either way nothing is lost but rounds that are computed again: files are written so that the process
may end at any moment.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from ebbflow.core.names import printable
from ebbflow.runs.records import CONFIG
from ebbflow.simulation.callbacks import Callback, SessionStarted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 4.0
"""Seconds that a round has to finish after the first signal."""


class Stopping(Callback):
    """Handles the signals that end a run, from before its first import to its last file.

    ``leaving`` is called before the process ends here and now.
    """

    def __init__(self, folder: Path, leaving: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._leaving = leaving
        self._signal: int | None = None
        self._training = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def session_started(self, event: SessionStarted) -> None:
        """From now on there are rounds to finish."""
        self._training = True

    def requested(self) -> bool:
        """Whether the run is to stop after this round."""
        return self._signal is not None

    @property
    def code(self) -> int:
        """The exit code by convention: 130 after an interrupt, 143 after a request to end."""
        return 128 + (self._signal or signal.SIGINT)

    @property
    def reason(self) -> str:
        """Who asked the run to stop: the name of the signal."""
        return signal.Signals(self._signal or signal.SIGINT).name

    def hint(self) -> str:
        """Return how to go on."""
        if (self._folder / CONFIG).exists():
            return f"stopped: resume with `ebbflow resume {printable(str(self._folder))}`"
        return "stopped before anything was computed"

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self._signal = self._signal is not None, number
        if again or not self._training:
            self._leave()
        _say("stopping after this round; once more to stop at once")
        timer = threading.Timer(PATIENCE, self._leave)
        timer.daemon = True
        timer.start()

    def _leave(self) -> None:
        """End the process here and now."""
        if sys.stderr.isatty():
            _say("\x1b[?25h", end="")  # a progress bar hides the cursor
        with suppress(Exception):
            self._leaving()
        _say(self.hint())
        os._exit(self.code)


def _say(text: str, end: str = "\n") -> None:
    with suppress(OSError):  # nobody may be listening any more
        os.write(2, f"{text}{end}".encode(errors="replace"))
