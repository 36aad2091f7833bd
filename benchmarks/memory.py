"""Memory of processes, read from /proc; on systems without it every figure is 0."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from benchmarks.sampling import PeriodicSampler

_PROC = Path("/proc")


def anonymous(pid: int) -> int:
    """Return a process's anonymous memory in bytes, or 0 if the process has ended."""
    return status(pid, "RssAnon")


def status(pid: int, field: str) -> int:
    """Return a field of a process's status in bytes, or 0 if it is not known."""
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
    # The name, in brackets, may hold any character; the parent is the second field after it.
    return int(stat.rpartition(")")[2].split()[1])


def family(pid: int) -> list[int]:
    """Return a process and all its descendants.

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
    members = [pid]
    for member in members:  # grows while it is read
        members += [child for child, parent in parents.items() if parent == member]
    return members


class PeakMemory(PeriodicSampler):
    """The peak of anonymous memory of a process and its descendants while the block runs."""

    def __init__(self, pid: int | None = None, interval: float = 0.05) -> None:
        super().__init__(interval)
        self.pid = os.getpid() if pid is None else pid
        self.bytes = 0

    def _sample(self) -> None:
        now = sum(anonymous(member) for member in family(self.pid))
        self.bytes = max(self.bytes, now)

    def __enter__(self) -> Self:
        self._sample()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._sample()
