"""Dying at a chosen file-system call of this process.

Every call that changes a file is counted: creating, writing, bringing to the disk, renaming,
deleting, cutting, making a folder. A write may also be cut in half.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class Calls:
    """Counts calls below a folder, and acts when one is reached."""

    def __init__(self, folder: Path, act: Callable[[], None], at: int | None = None) -> None:
        self.count = 0
        self.names: list[str] = []
        self._folder, self._act, self._at = str(folder), act, at

    def reached(
        self, name: str, path: object = None, half: Callable[[], None] | None = None
    ) -> None:
        """Count a call; if it is the one, do half of it and act."""
        if path is not None and not str(path).startswith(self._folder):
            return
        self.count += 1
        self.names.append(name)
        if self.count == self._at:
            if half is not None:
                half()
            self._act()


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    """Count this process's calls while the block runs."""
    before = {
        name: getattr(os, name) for name in ("fsync", "replace", "unlink", "truncate", "mkdir")
    }
    opened = io.open

    def wrapped(name: str) -> Callable[..., Any]:
        original = before[name]

        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            calls.reached(name, None if name == "fsync" else target)
            return original(target, *arguments, **options)

        return call

    def open_counted(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> IO[Any]:
        file = opened(path, mode, *arguments, **options)
        if "b" in mode and set(mode) & set("wxa"):
            try:
                calls.reached("create", path)
            except OSError:
                file.close()
                raise
            return _Written(file, calls, path)  # type: ignore[return-value]
        return file

    for name in before:
        setattr(os, name, wrapped(name))
    io.open = open_counted  # type: ignore[assignment]
    try:
        yield
    finally:
        io.open = opened
        for name, original in before.items():
            setattr(os, name, original)


class _Written:
    """A file whose writes are counted."""

    def __init__(self, file: IO[bytes], calls: Calls, path: object) -> None:
        self._file, self._calls, self._path = file, calls, path

    def write(self, content: bytes) -> int:
        def half() -> None:
            self._file.write(bytes(content)[: len(content) // 2])
            self._file.flush()

        self._calls.reached("write", self._path, half)
        return self._file.write(content)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def in_child(action: Callable[[], None]) -> int:
    """Do something in a forked process; return its exit code, or minus the signal that ended it."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 2)
            action()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)
