"""How much memory processes take, read from /proc (Linux; elsewhere nothing is known)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from benchmarks.watching import Watching

_PROC = Path("/proc")


def anonymous(pid: int) -> int:
    """Return the bytes of a process that are its own and in no file, or 0 if it is gone."""
    return status(pid, "RssAnon")


def status(pid: int, field: str) -> int:
    """Return the bytes in a field of a process's status, or 0 if they are not known."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in lines.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0


def _parent(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may hold anything; the parent is the second field after it.
    return int(stat.rpartition(")")[2].split()[1])


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it.

    >>> os.getpid() in family(os.getppid())
    True
    """
    if not _PROC.is_dir():
        return [pid]
    parents = {
        int(entry.name): _parent(int(entry.name))
        for entry in _PROC.iterdir()
        if entry.name.isdigit()
    }
    found = [pid]
    for member in found:  # grows while it is read
        found += [child for child, parent in parents.items() if parent == member]
    return found


class Peak(Watching):
    """The largest anonymous memory of a process and its descendants while the block runs."""

    def __init__(self, pid: int | None = None, every: float = 0.05) -> None:
        super().__init__(every)
        self.pid = os.getpid() if pid is None else pid
        self.bytes = 0

    def look(self) -> int:
        """Return what is taken at this moment."""
        return sum(anonymous(member) for member in family(self.pid))

    def _look(self) -> None:
        self.bytes = max(self.bytes, self.look())

    def __enter__(self) -> Self:
        self.bytes = self.look()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._look()
