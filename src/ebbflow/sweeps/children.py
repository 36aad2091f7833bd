"""Computes a cell in a child process: with memory and crashes of its own, and an end with us.

The child is a fork of a worker that has imported everything and computed nothing, so it begins at
once. If the worker dies, however suddenly, the child saves the present round and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import connection, get_context, parent_process
from types import FrameType
from typing import Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.malloc import use_one_arena
from ebbflow.core.names import printable
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.computing import CellEnding, compute_cell
from ebbflow.sweeps.failures import Failures, sentence_of
from ebbflow.sweeps.jobs import Jobs

GRACE = 10
"""Seconds that a round has to finish once its process is to end, unless another number is given."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# On other systems libraries may not survive a fork.
METHOD = "fork" if sys.platform == "linux" else "spawn"


class CellProcess:
    """A process that computes one cell."""

    def __init__(self, jobs: Jobs, name: str, grace: int = GRACE) -> None:
        self.name = name
        # Daemons are ended with this process if it ends in peace.
        self._process: Any = get_context(METHOD).Process(  # type: ignore[attr-defined]
            target=_main, args=(jobs, name, grace), daemon=True
        )
        with warnings.catch_warnings():
            # Libraries may have threads that wait for work; none of them holds a lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return int(self._process.pid)

    def wait(self, others: Sequence[int] = (), timeout: float | None = None) -> list[Any]:
        """Wait until the process has ended, or one of other handles is ready, or time is up."""
        return list(connection.wait([self._process.sentinel, *others], timeout))

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return bool(self._process.is_alive())

    def ask_to_stop(self) -> None:
        """Let the process save the present round and end."""
        with suppress(OSError, ValueError):
            self._process.terminate()

    def kill(self) -> None:
        """End the process here and now."""
        with suppress(OSError, ValueError):
            self._process.kill()

    def ending(self) -> CellEnding | str:
        """Return how the process ended, or what it died of."""
        self._process.join()
        code = int(self._process.exitcode)
        self._process.close()
        if code < 0:
            return f"signal {-code}"
        try:
            return CellEnding(code)
        except ValueError:
            return f"exit code {code}"


def _main(jobs: Jobs, name: str, grace: int) -> None:
    leaving = Leaving(partial(_give_up, jobs, name, grace), grace)
    use_one_arena()
    ending = 1
    try:
        ending = compute_cell(jobs, name, leaving.requested)
    except Exception as error:  # of notes and locks: or it would be tried again and again
        try:
            Failures(jobs.folder).write(name, error)
            ending = CellEnding.FAILED
        except (EbbflowError, OSError):  # nothing can be written any more: the worker says so
            print(f"{name}: {printable(sentence_of(error))}", file=sys.stderr)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    # At once: threads of libraries need not be waited for, and everything is on the disk.
    os._exit(ending)


def _give_up(jobs: Jobs, name: str, grace: int) -> None:
    """End in the middle of a round, which has to be computed again."""
    try:
        how = f"asked to stop, and no round was over {grace} s later"
        Claims(jobs.folder).note_end(name, os.getpid(), "stopped", how)
    finally:
        os._exit(CellEnding.STOPPED)


class Leaving:
    """Whether a process that computes a cell is to end: by a signal, or because its parent is gone.

    Once it is, the present round has some seconds to finish; then ``give_up`` is called.
    """

    def __init__(self, give_up: Callable[[], None], grace: int = GRACE) -> None:
        self._give_up, self._grace = give_up, grace
        self._event = threading.Event()
        for number in SIGNALS:
            signal.signal(number, self._handle)
        parent = parent_process()
        if parent is not None:
            watch = threading.Thread(target=self._watch, args=(parent.sentinel,), daemon=True)
            watch.start()

    def requested(self) -> bool:
        """Whether the cell is to be saved and left."""
        return self._event.is_set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._leave()

    def _watch(self, sentinel: int) -> None:
        connection.wait([sentinel])
        self._leave()

    def _leave(self) -> None:
        if not self._event.is_set():
            self._event.set()
            end = threading.Timer(self._grace, self._give_up)
            end.daemon = True
            end.start()
