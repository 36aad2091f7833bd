"""The run folder, from which a run can be understood, and resumed after a crash.

A crash loses only the rounds since the last checkpoint, and those are computed again bit for bit,
because every draw is a function of names. The order of writing ensures this: history entries first,
then the checkpoint that refers to them (with the lengths of the line files at that moment), and
only then are the entries deleted that the checkpoint no longer needs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from ebbflow.core import files
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records
from ebbflow.runs.plain import unshared

LINE_FILES = (records.METRICS, records.EVENTS)
"""Files that a run appends lines to."""
PATIENCE = 0.2
"""Seconds to wait for the lock: who asks whether a run goes on holds it for a few microseconds."""


class RunFolder:
    """A folder that a run is written to, locked for as long as it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / records.LOCK)
        self._lines: dict[str, IO[bytes]] = {}
        self._digests: dict[str, hashlib._Hash] = {}

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run folder to start or resume its run."""
        records.check_run(path)
        folder = cls(path)
        folder._acquire()
        sweep(path)
        return folder

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise EbbflowError(
                f"another process is writing to {self.path}: wait for it, or stop it first"
            ) from None

    def close(self) -> None:
        """Close the line files and release the lock."""
        for file in self._lines.values():
            file.close()
        self._lines.clear()
        self._digests.clear()
        self._lock.release()

    def discard(self) -> None:
        """Remove a folder in which nothing was computed."""
        self.close()
        for name in (records.CONFIG, records.ENVIRONMENT, records.LOCK):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def append(self, name: str, objects: Sequence[dict[str, Any]]) -> None:
        """Append a line of JSON for each object."""
        if not objects:
            return
        lines = b"".join(records.line_of(o) for o in objects)
        if name not in self._lines:
            unshared(self.path / name)
            self._digests[name] = digest_of(self.path / name)
            self._lines[name] = (self.path / name).open("ab")
        with files.room_named(self.path / name, lambda: len(lines)):
            self._lines[name].write(lines)
            self._lines[name].flush()
        self._digests[name].update(lines)

    def line_states(self) -> dict[str, dict[str, Any]]:
        """Return the length and digest of each line file, after all of it has reached the disk."""
        for file in self._lines.values():
            os.fsync(file.fileno())
        states = {}
        for name in LINE_FILES:
            path = self.path / name
            if path.exists():
                # From the disk: after a resume, a file may not have been opened yet.
                digest = self._digests[name] if name in self._digests else digest_of(path)
                states[name] = {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
        return states

    def check_lines(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise an error if a line file does not begin as it was at a checkpoint."""
        for name, state in states.items():
            path = self.path / name
            size = path.stat().st_size if path.exists() else 0
            if size < state["bytes"]:
                raise EbbflowError(
                    f"{path} is shorter than when the run was last saved: {records.RESTORE}"
                )
            if state["sha256"] not in ("", digest_of(path, state["bytes"]).hexdigest()):
                records.read_rounds(self.path)  # may know the line
                raise EbbflowError(
                    f"{path} is not as it was when the run was last saved: {records.RESTORE}"
                )

    def cut_lines(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Truncate the line files to their lengths at a checkpoint."""
        for name in LINE_FILES:
            path = self.path / name
            kept = states.get(name, {}).get("bytes", 0)
            if path.exists() and path.stat().st_size > kept:
                unshared(path)
                os.truncate(path, kept)
        records.read_rounds(self.path)  # notice a damaged line now rather than at the end
        records.read_events(self.path)

    def history(self, algorithm: str, method: str, seed: int) -> Path:
        """Return the folder of a method's past sessions."""
        return self.path / records.HISTORY / algorithm / method / f"seed-{seed}"


def digest_of(path: Path, size: int | None = None) -> hashlib._Hash:
    """Return the digest of a file's first bytes, or of all of it."""
    digest, left = hashlib.sha256(), size
    if path.exists():
        with path.open("rb") as file:
            while part := file.read(2**20 if left is None else min(2**20, left)):
                digest.update(part)
                left = None if left is None else left - len(part)
    return digest


def sweep(path: Path) -> list[Path]:
    """Delete what writers that were killed have left in a run folder, and return what it was.

    The caller holds the lock, so nobody is writing now.
    """
    left = [file for file in path.rglob(".*.tmp") if files.TEMPORARY.fullmatch(file.name)]
    for file in left:
        file.unlink(missing_ok=True)
    return left
