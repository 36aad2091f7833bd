"""Claims: a cell belongs to the process that holds its lock, for as long as it lives.

Beside each lock is a note of all attempts at the cell: where and when each began, which checkpoint
it went on from, and how it ended. An attempt whose note says that it is running, though nobody
holds the lock, has died.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, NotRequired, Self

from filelock import BaseFileLock
from pydantic import ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import look_anew
from ebbflow.runs.checkpoint import checkpoint_paths
from ebbflow.runs.records import read_json, write_json
from ebbflow.runs.schemas import checked
from ebbflow.runs.state import is_locked
from ebbflow.sweeps import locks

FOLDER = "claims"
KEPT = 100
"""Attempts at a cell that are remembered."""
State = Literal["running", "done", "stopped", "failed", "died"]
REMEDY = "remove the file; it only tells how cells were computed"


@with_config(ConfigDict(extra="forbid", strict=True))
class Attempt(TypedDict):
    """One process's work on a cell.

    ``checkpoint`` is the number of the checkpoint that it went on from, zero for the beginning.
    """

    host: Annotated[str, StringConstraints(max_length=300)]
    pid: Annotated[int, Field(ge=0)]
    since: Annotated[str, StringConstraints(max_length=40)]
    checkpoint: Annotated[int, Field(ge=0)]
    state: State
    how: NotRequired[Annotated[str, StringConstraints(max_length=300)]]
    seconds: NotRequired[float]
    cpu_seconds: NotRequired[float]
    memory: NotRequired[int]


@with_config(ConfigDict(extra="forbid", strict=True))
class ClaimNote(TypedDict):
    """The file beside a lock."""

    attempts: list[Attempt]


class Claims:
    """The claims of a sweep's cells, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER

    def is_held(self, name: str) -> bool:
        """Whether a process is computing a cell."""
        return bool(is_locked(self._lock(name)))

    def attempts(self, name: str) -> list[Attempt]:
        """Return what is known of the attempts at a cell."""
        path = self._note(name)
        if not path.exists():
            return []
        note: Any = checked(ClaimNote, read_json(path, REMEDY), str(path), REMEDY)
        found: list[Attempt] = note["attempts"]
        return found

    def take(self, name: str, run: Path, patience: float = locks.PATIENCE) -> Claim | None:
        """Claim a cell whose run is in a folder; None if another process has it."""
        lock = locks.taken(self._lock(name), patience)
        if lock is None:
            return None
        # Who had the lock before may have written these a moment ago, on another machine.
        look_anew((self.folder, run.parent, run))
        return Claim(lock, self._note(name), self.attempts(name), run)

    def note_death(self, name: str, pid: int, how: str) -> bool:
        """Note how a process of ours has died, unless the cell has been claimed again since.

        Return False if not even its beginning was noted.
        """
        lock = locks.taken(self._lock(name))
        if lock is None:
            return True
        try:
            return self.note_end(name, pid, "died", how)
        finally:
            lock.release()

    def note_end(self, name: str, pid: int, state: State, how: str) -> bool:
        """Note how a process ended that could not do so itself; the caller holds the lock.

        Return False if its beginning was not noted.
        """
        attempts = self.attempts(name)
        if not attempts or attempts[-1]["pid"] != pid:
            return False
        if attempts[-1]["state"] == "running":
            attempts[-1] |= {"state": state, "how": how}
            write_json(self._note(name), {"attempts": attempts})
        return True

    def _lock(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    def _note(self, name: str) -> Path:
        return self.folder / f"{name}.json"


class Claim:
    """A cell that is ours until the block ends, or the process."""

    def __init__(self, lock: BaseFileLock, note: Path, before: list[Attempt], run: Path) -> None:
        self._lock, self._note, self._before = lock, note, before
        self._checkpoint = checkpoint_number(run)
        self._now: Attempt | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._lock.release()

    @property
    def deaths(self) -> list[Attempt]:
        """The last attempts in a row that died before they had saved anything."""
        found: list[Attempt] = []
        for attempt in reversed(self._before):
            died = attempt["state"] in ("running", "died")
            if not died or attempt["checkpoint"] != self._checkpoint:
                break
            found.append(attempt)
        return found

    def give_up(self) -> None:
        """Note that the last attempt has failed: if the cell is tried again, deaths count anew."""
        self._before[-1]["state"] = "failed"
        self._write()

    def begin(self) -> None:
        """Note that the cell is being computed, by whom and from where on."""
        self._now = Attempt(
            host=hostname(),
            pid=os.getpid(),
            since=now(),
            checkpoint=self._checkpoint,
            state="running",
        )
        self._write()

    def conclude(self, state: State, measured: Mapping[str, Any]) -> None:
        """Note how the attempt has ended, and what it took."""
        if self._now is not None:
            self._now["state"] = state
            self._now |= measured  # type: ignore[typeddict-item]  # of its optional keys
            self._write()

    def _write(self) -> None:
        attempts = [*self._before, *([self._now] if self._now else [])]
        write_json(self._note, {"attempts": attempts[-KEPT:]})


def checkpoint_number(run: Path) -> int:
    """Return the number of a run's newest checkpoint; zero if there is none."""
    for path in checkpoint_paths(run):
        last = path.stem.rpartition("-")[2]
        return int(last) if last.isdigit() else 1
    return 0


def hostname() -> str:
    """Return what this machine is called."""
    return socket.gethostname()[:100] or "here"


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_since(moment: str) -> float:
    """Return how many seconds ago a time in UTC was; zero if it is none."""
    try:
        then = datetime.fromisoformat(moment)
        return max(0.0, (datetime.now(UTC) - then).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def readable_attempts(claims: Claims, name: str) -> list[Attempt]:
    """Return the attempts at a cell; none if their note is damaged, for a table must not fail."""
    try:
        return claims.attempts(name)
    except EbbflowError:
        return []
