"""Signals that end a program, so that what it has started can be ended first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from ebbflow.core.signals import handled_by

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_by_signals() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Raise an exception in this block at a signal that asks to end.

    Yields a function that returns a context for the way out, in which such signals wait: a second
    Ctrl-C must not leave half of the processes behind. A signal that is ignored stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield _nothing  # only the main thread hears of signals
        return
    handled = [each for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN]

    def end(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    with handled_by(end, handled):
        yield lambda: _held(handled)


@contextmanager
def _held(numbers: list[signal.Signals]) -> Iterator[None]:
    """Keep signals waiting; they arrive afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
