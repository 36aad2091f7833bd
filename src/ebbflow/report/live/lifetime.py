"""How long a server lives: until it is interrupted, asked to end, or left alone by its terminal."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)


@contextmanager
def until_ended() -> Iterator[Mapping[int, int]]:
    """Yield what to poll for the end: descriptors, and the events that mean it.

    A signal that is ignored stays so: that is how `nohup` keeps a program alive.
    """
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    wakened = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in handled:
        signal.signal(number, lambda *_: None)  # the pipe tells
    try:
        yield {reading: select.POLLIN, **_input()}
    finally:
        for number in handled:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(wakened)
        os.close(reading)
        os.close(writing)


def _input() -> dict[int, int]:
    """Return the standard input, if it is one that can go away: a terminal, a pipe or a socket.

    One that has gone already says nothing: many programs start others with a closed pipe.
    """
    try:
        handle = sys.stdin.fileno()
        mode = os.fstat(handle).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or not of this process
        return {}
    if not (os.isatty(handle) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return {}
    # What is typed is left alone: reading it would stop a program in the background.
    now = select.poll()
    now.register(handle, _GONE)
    return {} if now.poll(0) else {handle: _GONE}
