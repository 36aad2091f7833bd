"""Signals that a block of code handles in its own way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
"""What asks a program to stop."""


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], object], signals: Sequence[int] = STOPPING
) -> Iterator[None]:
    """Let a function handle signals within a block; outside the main thread, change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no other thread may set handlers
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
