"""Refuses a run that would need more memory or room on the disk than there is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from ebbflow.core.errors import EbbflowError
from ebbflow.simulation.estimate import Estimate


def refuse_too_large(planned: Estimate, folder: Path | None) -> None:
    """Raise an error if a run would need more memory or room on the disk than there is."""
    memory, available = sum(planned.memory.values()), available_memory()
    if available is not None and memory > available:
        most = largest(planned.memory)
        raise EbbflowError(
            f"the run needs about {in_words(memory)} of memory, most of it for {most}, and "
            f"{in_words(available)} are available: {_LESS_MEMORY[most]}"
        )
    if folder is None:
        return
    room = room_on_disk(folder)
    need = planned.most_disk - _written(folder)
    if need > room:
        most = largest(planned.disk)
        raise EbbflowError(
            f"the run writes about {in_words(need)} to {folder}, most of it for the {most}, and "
            f"its disk has {in_words(room)} left: {_LESS_DISK[most]}, or choose another disk"
        )


_LESS_MEMORY = {
    "libraries": "end other programs",
    "methods": "compare fewer methods or algorithms at a time",
    "device states": "lower engine.state_memory",
    "history": 'set history.keep = "last" and history.limit, or write to a run folder',
    "checkpoint": 'compare fewer methods, or set boundary.state = "reset"',
    "training": "lower engine.workers, engine.block or local.batch",
    "survey": "lower parameters.learned.models",
    "evaluation": "lower engine.workers, or use less of the test set (data.limit_test)",
}
_LESS_DISK = {
    "history": 'set history.keep = "last" and history.limit, or compare fewer methods',
    "checkpoint": 'compare fewer methods, or set boundary.state = "reset"',
    "records": "lower sessions, rounds or the number of seeds",
}


def available_memory() -> int | None:
    """Return the bytes of memory that this process can still get, if the system says so."""
    left = _of_machine("MemAvailable:")
    if left is None:
        return None
    return min([left, *(max(0, limit - used) for limit, used in _limits())])


def total_memory() -> int | None:
    """Return the bytes of memory that all processes here can have, if the system says so."""
    total = _of_machine("MemTotal:")
    if total is None:
        return None
    return min([total, *(limit for limit, _ in _limits())])


def _of_machine(what: str) -> int | None:
    kilobytes = _number(Path("/proc/meminfo"), what)
    return None if kilobytes is None else 1024 * kilobytes


_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_SECOND_VERSION = ("memory.max", "memory.current", "inactive_file")
_FIRST_VERSION = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _limits() -> Iterator[tuple[int, int]]:
    """Yield how much memory each control group around this process may use, and how much it does.

    Containers and the jobs of schedulers are such groups, one within the other.
    """
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # a system without such groups
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root, names = (_GROUPS / "memory", _FIRST_VERSION) if kinds else (_GROUPS, _SECOND_VERSION)
        own = PurePosixPath(path)
        # Within a container, those that are named may not be there: its own is then the root.
        for group in (own, *own.parents):
            limit_and_use = _limit_and_use(root / group.relative_to("/"), *names)
            if limit_and_use is not None:
                yield limit_and_use


def _limit_and_use(group: Path, limit: str, use: str, cache: str) -> tuple[int, int] | None:
    try:
        most, used = (int((group / name).read_text()) for name in (limit, use))
    except (OSError, ValueError):  # there is no limit
        return None
    # What was read from files some time ago is counted, too, but given up where memory is short.
    return most, max(0, used - (_number(group / "memory.stat", cache) or 0))


def _number(path: Path, what: str) -> int | None:
    """Return the number behind a name in one of the kernel's lists."""
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            name, number, *_ = line.split()
            if name == what:
                return int(number)
    except (OSError, ValueError):
        pass
    return None


def room_on_disk(folder: Path) -> int:
    """Return the bytes left on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(existing_folder(folder)).free


def existing_folder(path: Path) -> Path:
    """Return the nearest folder that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _written(folder: Path) -> int:
    """Return how much of a run is in its folder already."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def largest(parts_of: Mapping[str, int]) -> str:
    """Return what takes most."""
    return max(parts_of, key=lambda name: parts_of[name])


def in_words(size: int) -> str:
    """Return a number of bytes as one reads it.

    >>> in_words(800), in_words(1_500_000), in_words(2 * 10**12)
    ('800 B', '1.5 MB', '2.0 TB')
    """
    number, unit = float(size), 0
    while number >= 1000 and unit < 4:
        number, unit = number / 1000, unit + 1
    return f"{number:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}" if unit else f"{size} B"
