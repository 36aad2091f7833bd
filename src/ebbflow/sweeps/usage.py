"""What a process has taken: processor time of all its threads, and its largest memory."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def usage() -> dict[str, float | int]:
    """Return the processor seconds of this process and the bytes of its largest memory."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_seconds": round(spent.ru_utime + spent.ru_stime, 1), "memory": _peak(spent)}


def _peak(spent: resource.struct_rusage) -> int:
    # The kernel's own figure survives exec, and so may be the parent's; this one does not.
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # there is no /proc on this system
        lines = ""
    for line in lines.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return spent.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has now; zero if the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def birth(pid: int) -> str:
    """Return when a process was born, in the system's own count; empty if it is gone.

    The number of a process that has died may be given to another one.
    """
    if not Path("/proc/self/stat").exists():
        return _alive(pid)
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    # The second field is the program's name, which may hold anything but ends at the last bracket.
    rest = facts.rpartition(")")[2].split()
    return "" if rest[0] in ("Z", "X") else rest[19]


def _alive(pid: int) -> str:
    """Return some text for a process that is there, on systems without /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return "alive"
    except (ProcessLookupError, OverflowError):
        return ""
    return "alive"
