"""Power cuts: what a disk may hold after one, as a file system with a journal allows.

A short run is traced. A cut comes after some call. Then

- the content of a file is there if it was brought to the disk, otherwise any beginning of it is;
- names that were made, changed or removed in a folder since it was last brought to the disk are so
  up to any one of these changes, independently of what happened in other folders.
"""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks.chaos.damage import Damage
from benchmarks.chaos.kinds import results, run_to_the_end, wrong


class Change(NamedTuple):
    """One call: what it did, to which path, and what with."""

    what: str
    path: str
    more: Any = None


def trace(kind: str, folder: Path) -> list[Change]:
    """Run a short run and return every change that it made to files, in order."""
    changes: list[Change] = []
    with _traced(changes, folder):
        run_to_the_end(kind, folder)
    return changes


@contextmanager
def _traced(changes: list[Change], folder: Path) -> Iterator[None]:
    names = ("fsync", "replace", "unlink", "truncate", "mkdir")
    before = {name: getattr(os, name) for name in names}
    opened, root = io.open, str(folder)

    def known(path: object) -> bool:
        return str(path).startswith(root)

    def fsync(handle: int) -> None:
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        if known(path):
            changes.append(Change("sync", path))
        before["fsync"](handle)

    def replace(source: Any, target: Any) -> None:
        before["replace"](source, target)
        if known(source):
            changes.append(Change("rename", str(source), str(target)))

    def unlink(path: Any, *more: Any, **options: Any) -> None:
        before["unlink"](path, *more, **options)
        if known(path):
            changes.append(Change("unlink", str(path)))

    def truncate(path: Any, length: int) -> None:
        before["truncate"](path, length)
        if known(path):
            changes.append(Change("truncate", str(path), length))

    def mkdir(path: Any, *more: Any, **options: Any) -> None:
        before["mkdir"](path, *more, **options)
        if known(path):
            changes.append(Change("mkdir", str(path)))

    def open_traced(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> IO[Any]:
        file = opened(path, mode, *arguments, **options)
        if known(path) and "b" in mode and set(mode) & set("wxa"):
            changes.append(Change("create", str(path)))
            return _Traced(file, str(path), changes)  # type: ignore[return-value]
        return file

    for function in (fsync, replace, unlink, truncate, mkdir):
        setattr(os, function.__name__, function)
    io.open = open_traced  # type: ignore[assignment]
    try:
        yield
    finally:
        io.open = opened
        for name, original in before.items():
            setattr(os, name, original)


class _Traced:
    """A file whose writes are traced."""

    def __init__(self, file: IO[bytes], path: str, changes: list[Change]) -> None:
        self._file, self._path, self._changes = file, path, changes

    def write(self, content: bytes) -> int:
        self._changes.append(Change("write", self._path, bytes(content)))
        return self._file.write(content)

    def __enter__(self) -> _Traced:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


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
        self.folders: set[str] = set()

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
        elif what == "rename":
            file = self.files[path]
            self._name(path, None)
            self._name(more, file)
        elif what == "unlink" and path in self.files:
            self._name(path, None)
        elif what == "mkdir":
            self.folders.add(path)
        elif what == "sync" and path in self.files:
            self.files[path].durable = len(self.files[path].content)
        elif what == "sync":
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
    noticed = harmless = 0
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
    return Damage("power cut", states, noticed, harmless, tuple(found))
