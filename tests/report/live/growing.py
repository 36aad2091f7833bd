"""A run folder that grows as if its run went on, line by line of a finished one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from ebbflow.runs import records
from tests.run_folders import SMALL

METHODS = len(SMALL["methods"])
LINES = METHODS * SMALL["rounds"]
"""Of ``metrics.jsonl``, in each session."""
EVENTS = 3 * METHODS + 1
"""In each session: a start, what was reached and costs of each method, then its end."""


class GrowingRun:
    """A copy of a run with the settings `SMALL`, of which so far only these are there."""

    def __init__(self, finished: Path, folder: Path) -> None:
        self.folder = folder
        self._finished = finished
        self._lines = {
            name: (finished / name).read_bytes().splitlines(keepends=True)
            for name in (records.METRICS, records.EVENTS)
        }
        folder.mkdir(parents=True)
        for name in (records.CONFIG, records.ENVIRONMENT):
            shutil.copy(finished / name, folder / name)

    def grow(self, session: int, done: int) -> None:
        """Let so many rounds of a session be there: more are appended, others are cut off."""
        before = session - 1
        self._set(records.METRICS, LINES * before + METHODS * done)
        self._set(records.EVENTS, EVENTS * before + METHODS)

    def end(self, session: int) -> None:
        """Let a session be over, and the next one not have begun."""
        self._set(records.METRICS, LINES * session)
        self._set(records.EVENTS, EVENTS * session)

    def finish(self) -> None:
        """Let everything be there."""
        for entry in self._finished.iterdir():
            if entry.is_file() and not (self.folder / entry.name).exists():
                shutil.copy(entry, self.folder / entry.name)
        for name, lines in self._lines.items():
            self._set(name, len(lines))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the lock, as the process of a run does."""
        with FileLock(self.folder / records.LOCK):
            yield

    def damage(self, line: int) -> None:
        """Change a byte of a line of ``metrics.jsonl``."""
        path = self.folder / records.METRICS
        lines = path.read_bytes().splitlines(keepends=True)
        lines[line] = lines[line].replace(b"fedavg", b"fedavh")
        path.write_bytes(b"".join(lines))

    def _set(self, name: str, count: int) -> None:
        path, wanted = self.folder / name, b"".join(self._lines[name][:count])
        size = path.stat().st_size if path.exists() else 0
        if size > len(wanted):
            os.truncate(path, len(wanted))
        else:
            with path.open("ab") as file:
                file.write(wanted[size:])
