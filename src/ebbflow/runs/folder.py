"""The run folder, from which a run can be understood, and resumed after a crash.

A crash loses only the rounds since the last checkpoint, and those are computed again bit for bit,
because every draw is a function of names. The order of writing ensures this: history entries first,
then the checkpoint that refers to them (with the lengths of the line files at that moment), and
only then are the entries deleted that the checkpoint no longer needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records

LINE_FILES = (records.METRICS, records.EVENTS)
"""Files that a run appends lines to."""


class RunFolder:
    """A folder that a run is written to, locked for as long as it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock")
        self._lines: dict[str, IO[bytes]] = {}

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run folder to start or resume its run."""
        records.check_run(path)
        folder = cls(path)
        folder._acquire()
        return folder

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise EbbflowError(
                f"another process is writing to {self.path}: wait for it, or stop it first"
            ) from None

    def close(self) -> None:
        """Close the line files and release the lock."""
        for file in self._lines.values():
            file.close()
        self._lines.clear()
        self._lock.release()

    def discard(self) -> None:
        """Remove a folder in which nothing was computed."""
        self.close()
        for name in (records.CONFIG, records.ENVIRONMENT, ".lock"):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def append(self, name: str, objects: Sequence[dict[str, Any]]) -> None:
        """Append a line of JSON for each object."""
        if name not in self._lines:
            self._lines[name] = (self.path / name).open("ab")
        lines = "".join(json.dumps(o) + "\n" for o in objects)
        self._lines[name].write(lines.encode())
        self._lines[name].flush()

    def line_lengths(self) -> dict[str, int]:
        """Return the lengths of the line files, after all their content has reached the disk."""
        for file in self._lines.values():
            os.fsync(file.fileno())
        # From the disk: after a resume, a file may not have been opened yet.
        paths = [self.path / name for name in LINE_FILES]
        return {path.name: path.stat().st_size for path in paths if path.exists()}

    def cut_lines(self, lengths: dict[str, int]) -> None:
        """Truncate the line files to their lengths at a checkpoint."""
        for name in LINE_FILES:
            lines = self.path / name
            kept = lengths.get(name, 0)
            size = lines.stat().st_size if lines.exists() else 0
            if size < kept:
                raise EbbflowError(
                    f"{lines} is shorter than when the run was last saved: {records.RESTORE}"
                )
            if size > kept:
                os.truncate(lines, kept)
        records.read_rounds(self.path)  # notice a damaged line now rather than at the end

    def history(self, algorithm: str, method: str, seed: int) -> Path:
        """Return the folder of a method's past sessions."""
        return self.path / records.HISTORY / algorithm / method / f"seed-{seed}"
