"""Room in memory: cells that run beside each other must not need more than there is.

A cell takes its memory little by little, so what the system calls available is promised in part to
cells that have just started. Every process that computes a cell writes down what it will need at
most; what it has not taken yet is not available to the next one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import read_json, write_json
from ebbflow.runs.schemas import checked
from ebbflow.sweeps import locks
from ebbflow.sweeps.cell_names import safe_name
from ebbflow.sweeps.claims import hostname
from ebbflow.sweeps.cores import bind_to, least_used
from ebbflow.sweeps.usage import birth, resident

FOLDER = "hosts"
PATIENCE = 60.0
"""Seconds to wait for memory while no other cell is computed here."""
_Bytes = Annotated[int, Field(ge=0)]


@with_config(ConfigDict(extra="forbid", strict=True))
class Promise(TypedDict):
    """The memory that a process may take at most for a cell, and cores that are its own."""

    pid: _Bytes
    birth: Annotated[str, StringConstraints(max_length=40)]
    cell: Annotated[str, StringConstraints(max_length=100)]
    bytes: _Bytes
    cores: list[_Bytes]


@with_config(ConfigDict(extra="forbid", strict=True))
class Promises(TypedDict):
    """The file of a machine."""

    promises: list[Promise]


class Room:
    """The memory of this machine, as far as it is promised to cells of a sweep."""

    def __init__(self, folder: Path) -> None:
        name = safe_name(hostname())
        self._path, self._lock = (folder / FOLDER / f"{name}{end}" for end in (".json", ".lock"))
        self._short_since: float | None = None

    def check(self) -> None:
        """Raise an error unless files of the sweep can be written and locked on this machine."""
        lock = locks.taken(self._lock, locks.LONG)
        if lock is not None:
            lock.release()

    def never(self, need: int | None) -> bool:
        """Whether a cell needs more than this machine has."""
        if need is None:
            return False
        from ebbflow.simulation.ceilings import total_memory  # noqa: PLC0415 - imports torch

        total = total_memory()
        return total is not None and need > total

    def fits(self, need: int | None) -> bool:
        """Whether there is room for a cell now, in a process that is a fork of this one."""
        if need is None:
            return True
        if self.never(need):
            return False
        from ebbflow.simulation.ceilings import available_memory  # noqa: PLC0415 - imports torch

        available = available_memory()
        if available is None:
            return True
        promised = sum(_not_taken(each) for each in self.others())
        return need - resident(os.getpid()) <= available - promised

    def lacking(self, need: int | None) -> str | None:
        """Return how little memory there is for a cell that does not fit, if it is to be left.

        It is if it needs more than this machine has, or if it has been asked about for long while
        no cell was computed here.
        """
        from ebbflow.simulation import ceilings  # noqa: PLC0415 - imports torch

        if self.never(need):
            return f"this machine has {ceilings.in_words(ceilings.total_memory() or 0)}"
        if self._short_for_long():
            return f"other programs leave {ceilings.in_words(ceilings.available_memory() or 0)}"
        return None

    def _short_for_long(self) -> bool:
        """Whether there has been too little memory for long, though no cell is computed here."""
        if self.others():
            self._short_since = None
            return False
        if self._short_since is None:
            self._short_since = time.monotonic()
        return time.monotonic() - self._short_since > PATIENCE

    def was_enough(self) -> None:
        """Note that a cell has been computed: from now on, memory has not been short for long."""
        self._short_since = None

    def reserve(self, cell: str, need: int | None, cores: int = 0) -> bool:
        """Promise this process the memory of a cell; False if there is no room for it now.

        With a number of ``cores``, it is bound to so many that other cells use least.
        """
        self.fits(need)  # imports what it needs, which may take a while: not with the lock
        lock = locks.taken(self._lock, locks.LONG)
        if lock is None:  # a machine that is too busy for that is too busy for another cell
            return False
        try:
            if not self.fits(need):
                return False
            pid, others = os.getpid(), self.others()
            own = least_used(cores, [core for each in others for core in each["cores"]])
            bind_to(own)
            ours = Promise(pid=pid, birth=birth(pid), cell=cell, bytes=need or 0, cores=own)
            write_json(self._path, {"promises": [*others, ours]})
        finally:
            lock.release()
        return True

    def release(self) -> None:
        """Take back what this process was promised; if that is left undone, its end does it."""
        lock = locks.taken(self._lock, locks.LONG)
        if lock is not None:
            try:
                write_json(self._path, {"promises": self.others()})
            finally:
                lock.release()

    def others(self) -> list[Promise]:
        """Return what other processes were promised that are alive."""
        if not self._path.exists():
            return []
        try:
            remedy = "remove the file"
            found: list[Promise] = checked(
                Promises, read_json(self._path), str(self._path), remedy
            )["promises"]
        except EbbflowError:  # what is damaged promises nothing, and is written anew
            return []
        return [
            each
            for each in found
            if each["pid"] != os.getpid() and each["birth"] == birth(each["pid"]) != ""
        ]


def _not_taken(promise: Promise) -> int:
    return max(0, promise["bytes"] - resident(promise["pid"]))
