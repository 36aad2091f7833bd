"""Ceilings for what is tried: seconds, memory, and processes that take the blame for a crash."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

HANG = "TookTooLong"
"""What the traceback of a command that hangs contains."""


class TookTooLong(BaseException):
    """The time is over; no error, so that nobody handles it as one."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Interrupt the block if it takes longer."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def forget_peak() -> None:
    """Begin to measure the highest memory anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the most memory, in bytes, that this process has used since it was last forgotten."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def in_processes(
    tasks: Sequence[Any],
    work: Callable[[Any], Any],
    *,
    batch: int,
    memory: int,
    seconds: int,
) -> list[Any]:
    """Return what ``work`` makes of every task, in forked processes of so many tasks each.

    A process cannot allocate more than ``memory``. If it dies, or hangs for ``seconds`` where
    Python cannot be interrupted, the task at which it did so has no result (None), and another
    process goes on after it. Results are JSON.
    """
    results: list[Any] = []
    while len(results) < len(tasks):
        some = tasks[len(results) : len(results) + batch]
        made = _in_process(some, work, memory, seconds)
        results += made if len(made) == len(some) else [*made, None]
    return results


def _in_process(
    tasks: Sequence[Any], work: Callable[[Any], Any], memory: int, seconds: int
) -> list[Any]:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
            with os.fdopen(writing, "w") as pipe, Path(os.devnull).open("w") as nowhere:
                for task in tasks:
                    # From a thread of its own, which needs no Python.
                    faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
                    print(json.dumps(work(task)), file=pipe, flush=True)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        results = [json.loads(line) for line in pipe if line.endswith("\n")]
    os.waitpid(process, 0)
    return results
