"""How far a run is: finished, running or stopped, read in a moment and without disturbing it."""

from __future__ import annotations

import fcntl
import os
import time
import tomllib
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records

STARTING = 60.0
"""Seconds after which a folder without a lock is no longer taken for a run that is just starting:
the folder is made first, then torch is imported, then the lock is taken."""
TAIL = 2**16
"""Bytes at the end of ``metrics.jsonl`` that are read; they hold many lines."""
LARGEST_CONFIG = 2**20


class RunState(NamedTuple):
    """How far a run is.

    Attributes:
        state: ``finished``; ``running`` if a process is writing to the folder; or ``stopped``, and
            then `ebbflow resume` goes on.
        seed: The seed of the last round that was recorded, or None before the first.
        session: Its session.
        round: Its round.
        done: Rounds of all seeds that were recorded, if that is known: where the length of a
            session follows from its duration, it is not.
        total: Rounds of all seeds, if that is known.
        seeds: All seeds, in order.
        sessions: The sessions of a seed, if that is known.
    """

    state: Literal["finished", "running", "stopped"]
    seed: int | None = None
    session: int | None = None
    round: int | None = None
    done: int | None = None
    total: int | None = None
    seeds: tuple[int, ...] = ()
    sessions: int | None = None

    @property
    def place(self) -> str:
        """Where it is, in words."""
        if self.seed is None:
            return "before the first round"
        of = "" if self.sessions is None else f" of {self.sessions}"
        place = f"seed {self.seed}, session {self.session}{of}, round {self.round}"
        if self.done is None or self.total is None:
            return place
        return f"{place} ({self.done} of {self.total} rounds)"


def run_state(folder: Path) -> RunState:
    """Return how far a run is; raise an error if the folder holds none.

    This reads the end of one file, however long the run is, and may be called at any moment. What
    is damaged is taken as unknown: `ebbflow verify` tells.
    """
    if not (folder / records.CONFIG).is_file():
        records.check_run(folder)
    plan, last = _plan(folder), _last_round(folder)
    state = RunState(
        "stopped",
        **({} if last is None else {name: last[name] for name in ("seed", "session", "round")}),
        done=None if plan is None else plan.done(last),
        total=None if plan is None else plan.total,
        seeds=() if plan is None else plan.seeds,
        sessions=None if plan is None else plan.sessions,
    )
    if (folder / records.SUMMARY).is_file():
        return state._replace(state="finished")
    return state._replace(state="running" if is_written_to(folder) else "stopped")


def is_written_to(folder: Path) -> bool:
    """Whether a process is writing to a run folder, or is about to.

    The lock is asked for together with everybody else who only looks (shared) and given back at
    once, so that the process that holds it notices nothing.
    """
    held = is_locked(folder / records.LOCK)
    return _is_starting(folder) if held is None else held


def is_locked(path: Path) -> bool | None:
    """Whether a process holds the lock of a file; None if there is no file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:  # no plain file, or not for us to read
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def _is_starting(folder: Path) -> bool:
    """Whether a folder was made a moment ago, and nothing but its configuration is there yet."""
    if (folder / records.ENVIRONMENT).exists():
        return False
    with suppress(OSError):
        return 0 <= time.time() - (folder / records.CONFIG).stat().st_mtime < STARTING
    return False


# --- what there is to do -------------------------------------------------------------------------


class _PlannedRounds(NamedTuple):
    """The seeds and sessions of a run; the lengths of sessions are None if they are not known."""

    seeds: tuple[int, ...]
    sessions: int
    lengths: tuple[int, int, int] | None
    """Pilot sessions, their rounds, and the rounds of the others."""

    def _before(self, session: int) -> int | None:
        """Return the rounds of one seed before a session."""
        if self.lengths is None:
            return None
        pilots, long, usual = self.lengths
        first = min(pilots, session - 1)
        return first * long + (session - 1 - first) * usual

    @property
    def total(self) -> int | None:
        a_seed = self._before(self.sessions + 1)
        return None if a_seed is None else len(self.seeds) * a_seed

    def done(self, last: dict[str, Any] | None) -> int | None:
        if last is None:
            return 0
        before, a_seed = self._before(last["session"]), self._before(self.sessions + 1)
        if before is None or a_seed is None or last["seed"] not in self.seeds:
            return None
        return self.seeds.index(last["seed"]) * a_seed + before + int(last["round"])


def _plan(folder: Path) -> _PlannedRounds | None:
    """Return what a run's configuration says of its rounds, if it can be read."""
    try:
        with (folder / records.CONFIG).open("rb") as file:
            values = tomllib.loads(file.read(LARGEST_CONFIG).decode())
        pilot, schedule = values.get("pilot", {}), values.get("schedule", {})
        numbers = [values["sessions"], values["rounds"], *values["seeds"]]
        rest = [pilot.get("sessions", 1), pilot.get("rounds", values["rounds"])]
        if not all(type(number) is int and number >= 0 for number in (*numbers, *rest)):
            return None
        by_time = schedule.get("kind", "groups") != "groups" and "round_time" in schedule
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    sessions, usual, *seeds = numbers
    pilots, long = rest
    lengths = None if by_time else (pilots, long, usual)
    return _PlannedRounds(tuple(seeds), sessions, lengths)


def _last_round(folder: Path) -> dict[str, Any] | None:
    """Return the last whole line of ``metrics.jsonl``, if there is one."""
    path = folder / records.METRICS
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        # What follows the last end of a line is still being written.
        lines = file.read(TAIL).split(b"\n")[:-1]
    for line in reversed(lines):
        text, checksum = records.split_line(line)
        if checksum is not None and zlib.crc32(text) != checksum:
            continue
        with suppress(EbbflowError, KeyError):
            found = records.object_of(text, str(path))
            place = [found[name] for name in ("seed", "session", "round")]
            if all(type(number) is int and number >= 0 for number in place):
                return found
    return None
