"""Workers on this machine: so many processes, each with its share of the cores, kept alive."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder
from ebbflow.core.signals import handled_by
from ebbflow.sweeps.children import GRACE
from ebbflow.sweeps.cores import shares_of_cores, shares_of_gpus
from ebbflow.sweeps.jobs import JobsReference
from ebbflow.sweeps.servants import start_servant

INTERVAL = 0.3
"""Seconds between two looks at the workers."""
PATIENCE = 5.0
"""Seconds that workers have to end, beyond those that their rounds have to finish."""
SHORT, MOST_SHORT = 10.0, 5
"""A worker that has died so often in a row, each time after fewer seconds, is given up."""


class _Member:
    """One worker: its process, and how often it died young."""

    def __init__(
        self, reference: JobsReference, cores: list[int], gpu: str | None, log: Path, grace: int
    ) -> None:
        own = {"cores": cores, "gpu": gpu, "grace": grace}
        self._order = {"do": "work", **reference._asdict(), **own}
        self.log = log
        self._young = 0
        self.start()

    def start(self) -> None:
        """Start the process, or another one after it has died."""
        self._began = time.monotonic()
        with self.log.open("ab") as file:
            self.process: subprocess.Popen[bytes] = start_servant(self._order, stderr=file)

    def tend(self) -> bool:
        """Return whether the worker is at work; start it again if it was killed."""
        code = self.process.poll()
        if code is None:
            return True
        self.close()
        if code == 0:
            return False
        self._young = self._young + 1 if time.monotonic() - self._began < SHORT else 0
        if code == 2 or self._young >= MOST_SHORT:
            raise EbbflowError(self._last_words(code))
        self.start()
        return True

    def _last_words(self, code: int) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1].removeprefix("ebbflow: ") if lines else ""
        if code == 2 and last:
            return last
        return f"a worker ends again and again (code {code}): see {self.log}"

    def close(self) -> None:
        """Let go of the pipe that keeps the process alive."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()


class Crew:
    """Workers on this machine, from their start to their end.

    Args:
        reference: The cells.
        count: How many workers.
        logs: The folder in which they write down what they do.
        grace: Seconds that a round has to finish once they are asked to stop.
    """

    def __init__(
        self, reference: JobsReference, count: int, logs: Path, grace: int = GRACE
    ) -> None:
        make_folder(logs)
        self._patience = grace + PATIENCE
        self.stopped_by: int | None = None
        self._asked = 0
        shares = zip(shares_of_cores(count), shares_of_gpus(count), strict=True)
        self._members = [
            _Member(reference, cores, gpu, logs / f"worker-{place}.log", grace)
            for place, (cores, gpu) in enumerate(shares, start=1)
        ]

    @property
    def pids(self) -> list[int]:
        """The numbers of the workers' processes."""
        return [member.process.pid for member in self._members]

    def work(self, look: Callable[[], None]) -> None:
        """Wait until the workers have nothing left to do, and ``look`` now and then.

        A signal stops them after their present rounds, a second one at once.
        """
        try:
            with handled_by(self._handle):
                while self.stopped_by is None:
                    at_work = [member.tend() for member in self._members]
                    look()
                    if not any(at_work):
                        return
                    time.sleep(INTERVAL)
                self._stop()
        finally:
            self._end()

    def _stop(self) -> None:
        """Ask the workers to stop, and wait until they have saved what they compute."""
        running = [member.process for member in self._members if member.process.poll() is None]
        asked = 0
        until = time.monotonic() + self._patience
        while time.monotonic() < until and any(process.poll() is None for process in running):
            if self._asked > asked:  # a second time, they leave at once
                asked = self._asked
                for process in running:
                    process.terminate()
            time.sleep(0.05)

    def _end(self) -> None:
        """End whatever is still there."""
        for member in self._members:
            member.close()
            if member.process.poll() is None:
                member.process.terminate()
        until = time.monotonic() + (0.2 if self.stopped_by is not None else self._patience)
        for member in self._members:
            try:
                member.process.wait(max(0.05, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        self.stopped_by = self.stopped_by or number
