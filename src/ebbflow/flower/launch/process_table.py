"""The processes of this machine: which are running, which began when, which carry a mark.

A number alone names no process: as soon as one has ended, another may get its number. What names a
process here is its number together with the moment it began. On Linux all of it is read from
``/proc``; elsewhere, as on macOS, from what ``ps`` prints, whose times are whole seconds.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "EBBFLOW_FEDERATION"
"""The environment variable by which the processes of a federation know whose they are."""
PART = "EBBFLOW_PROCESS"
"""The environment variable with the name of the process that they descend from."""
_PROC = Path("/proc")
_ENDED = "ZXx"
"""The states of a process that has ended and is only waiting for its parent to notice."""
_PARENT, _SESSION, _STARTED = 1, 3, 19
"""Places in ``/proc/PID/stat``, counted from the state, which follows the name."""


@dataclass(frozen=True)
class LiveProcess:
    """A process that is running."""

    pid: int
    parent: int
    session: int
    started: str
    """When it began, in a form that is only compared."""


def find(pid: int) -> LiveProcess | None:
    """Return a process by its number, or None if there is none that runs."""
    if not _has_proc():
        return next(iter(_listed(["-p", str(pid)])), None)
    try:
        text = (_PROC / str(pid) / "stat").read_bytes().decode(errors="replace")
    except OSError:
        return None
    # The name may hold anything, spaces and brackets too: what follows the last one counts.
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _STARTED or fields[0] in _ENDED:
        return None
    return LiveProcess(pid, int(fields[_PARENT]), int(fields[_SESSION]), _boot() + fields[_STARTED])


def everything() -> list[LiveProcess]:
    """Return all processes that are running."""
    if not _has_proc():
        return _listed(["-ax"])
    numbers = [int(entry) for entry in os.listdir(_PROC) if entry.isdecimal()]  # noqa: PTH208 - for speed
    return [found for number in numbers if (found := find(number)) is not None]


def is_running(pid: int, started: str) -> bool:
    """Whether the process that began at that moment is still running."""
    found = find(pid)
    return found is not None and found.started == started


def marked(mark: str, among: Iterable[LiveProcess], name: str | None = None) -> list[LiveProcess]:
    """Return the processes whose environment carries the mark, of one part or of all."""
    wanted = {f"{MARK}={mark}"} | ({f"{PART}={name}"} if name is not None else set())
    if not _has_proc():
        shown = _environments_by_ps()
        return [each for each in among if wanted <= shown.get(each.pid, set())]
    entries = {entry.encode() for entry in wanted}
    return [each for each in among if entries <= _environment(each.pid)]


def descendants(roots: Iterable[LiveProcess], among: Iterable[LiveProcess]) -> list[LiveProcess]:
    """Return the children of processes, their children, and so on; not the roots themselves."""
    children: dict[int, list[LiveProcess]] = {}
    for each in among:
        children.setdefault(each.parent, []).append(each)
    waiting, found = list(roots), []
    known = {each.pid for each in waiting}
    while waiting:
        parent = waiting.pop()
        # A parent that still runs had its number to itself when the others were listed.
        if not is_running(parent.pid, parent.started):
            continue
        for child in children.get(parent.pid, ()):
            if child.pid not in known:
                known.add(child.pid)
                waiting.append(child)
                found.append(child)
    return found


def send(process: LiveProcess, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return whether it was still there.

    The kernel's handle for a process is taken before its start is compared: even if the process
    ends in between and its number goes to another one, that one gets no signal.
    """
    with suppress(OSError):  # it has ended meanwhile, or is not ours to end
        if not hasattr(os, "pidfd_open"):
            if is_running(process.pid, process.started):
                os.kill(process.pid, number)
                return True
            return False
        handle = os.pidfd_open(process.pid)
        try:
            if is_running(process.pid, process.started):
                signal.pidfd_send_signal(handle, number)
                return True
        finally:
            os.close(handle)
    return False


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


@functools.cache
def _boot() -> str:
    """Return a name for the time since the machine was started: starts are counted from then."""
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip() + "/"
    return ""


def _environment(pid: int) -> set[bytes]:
    try:
        return set((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:  # it has ended, or is another user's
        return set()


def _ps(arguments: list[str]) -> list[str]:
    done = subprocess.run(
        ["ps", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    return done.stdout.splitlines()


def _listed(which: list[str]) -> list[LiveProcess]:
    """Return processes as ``ps`` lists them."""
    row = re.compile(r"\s*(\d+)\s+(\d+)\s+(\w+)\s+(\S+)\s+(.*\S)\s*")
    found = []
    # Where a session is no number (macOS prints an address), the group serves: it is the same for
    # what is started here.
    for line in _ps([*which, "-o", "pid=,ppid=,pgid=,state=,lstart="]):
        parts = row.fullmatch(line)
        if parts is not None and parts[4][0] not in _ENDED:
            found.append(LiveProcess(int(parts[1]), int(parts[2]), int(parts[3]), parts[5]))
    return found


def _environments_by_ps() -> dict[int, set[str]]:
    """Return the words of each command and of its environment, which ``ps`` prints after it."""
    everybody = ["-axEww"] if sys.platform == "darwin" else ["axeww"]
    rows = (line.split() for line in _ps([*everybody, "-o", "pid=,command="]))
    return {int(words[0]): set(words[1:]) for words in rows if words}
