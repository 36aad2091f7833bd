"""Power cuts: what a disk may hold after one, as a file system with a journal allows.

A short run is traced. A cut comes after some call. Then

- the content of a file is there if it was brought to the disk, otherwise any beginning of it is;
- names that were made, changed or removed in a folder since it was last brought to the disk are so
  up to any one of these changes, independently of what happened in other folders.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chaos.calls import watched
from benchmarks.chaos.damage import Damage
from benchmarks.chaos.kinds import results, run_to_the_end, wrong


class Change(NamedTuple):
    """One call: what it did, to which path, and what with."""

    what: str
    path: str
    more: Any = None


class _Trace:
    """Notes every call below a folder."""

    def __init__(self, folder: Path) -> None:
        self.changes: list[Change] = []
        self._folder = str(folder)

    def reached(self, name: str, path: str, more: Any = None) -> None:
        """Note a call."""
        if path.startswith(self._folder):
            self.changes.append(Change(name, path, more))


def trace(kind: str, folder: Path) -> list[Change]:
    """Run a short run and return every change that it made to files, in order."""
    watcher = _Trace(folder)
    with watched(watcher):
        run_to_the_end(kind, folder)
    return watcher.changes


class _File:
    """A file's content, and how much of it has been brought to the disk."""

    def __init__(self) -> None:
        self.content, self.durable = bytearray(), 0


class _Disk:
    """What is on a disk: files by their identity, and the names in each folder."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.pending: dict[str, list[tuple[str, _File | None]]] = {}
        self.durable: dict[str, _File] = {}

    def apply(self, change: Change) -> None:
        what, path, more = change
        if what == "create" and path not in self.files:
            self._name(path, _File())
        elif what == "write":
            self.files[path].content += more
        elif what == "truncate":
            file = self.files[path]
            del file.content[more:]
            file.durable = min(file.durable, more)
        elif what == "replace":
            file = self.files[path]
            self._name(path, None)
            self._name(str(more), file)
        elif what == "unlink" and path in self.files:
            self._name(path, None)
        elif what == "fsync" and path in self.files:
            self.files[path].durable = len(self.files[path].content)
        elif what == "fsync":
            self._settle(path, None)

    def _name(self, path: str, file: _File | None) -> None:
        if file is None:
            self.files.pop(path, None)
        else:
            self.files[path] = file
        self.pending.setdefault(str(Path(path).parent), []).append((path, file))

    def _settle(self, folder: str, upto: int | None) -> None:
        for path, file in self.pending.pop(folder, [])[:upto]:
            if file is None:
                self.durable.pop(path, None)
            else:
                self.durable[path] = file

    def cut(self, draw: random.Random) -> dict[str, bytes]:
        """Return what is there after a power cut."""
        for folder, pending in list(self.pending.items()):
            self._settle(folder, draw.randrange(len(pending) + 1))
        found = {}
        for path, file in self.durable.items():
            size = draw.randint(file.durable, len(file.content))
            found[path] = bytes(file.content[:size])
        return found


def cut_power(kind: str, scratch: Path, states: int) -> Damage:
    """Resume a run from so many states that a power cut may leave."""
    draw = random.Random(f"power {kind}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    traced, run = scratch / "traced", scratch / "run"
    changes = trace(kind, traced)
    expected = results(traced)
    harmless = 0
    found: list[str] = []
    for _ in range(states):
        place = draw.randrange(1, len(changes) + 1)
        disk = _Disk()
        for change in changes[:place]:
            disk.apply(change)
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        for path, content in disk.cut(draw).items():
            target = run / Path(path).relative_to(traced)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        try:
            run_to_the_end(kind, run)
            problem = wrong(run, expected)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            found.append(f"after call {place} ({changes[place - 1].what}): {problem}")
        else:
            harmless += 1
    return Damage("power cut", states, 0, harmless, tuple(found))
