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
from typing import IO, Any, Protocol


class Watcher(Protocol):
    """Hears of every call before it is made."""

    def reached(self, name: str, path: str, more: Any = None) -> None:
        """Hear of a call: ``more`` is what it writes, renames to, or cuts to.

        May raise an error in the place of the call, or end the process.
        """
        ...


class Calls:
    """Counts calls below a folder, and acts when one is reached; a write is half done by then."""

    def __init__(self, folder: Path, act: Callable[[], None], at: int | None = None) -> None:
        self.count = 0
        self.names: list[str] = []
        self._folder, self._act, self._at = str(folder), act, at

    def reached(self, name: str, path: str, more: Any = None) -> None:
        """Count a call; if it is the one, act."""
        # Folders above are brought to the disk as well when this one is made.
        if name != "fsync" and not path.startswith(self._folder):
            return
        self.count += 1
        self.names.append(name)
        if self.count == self._at:
            if name == "write":
                with open(path, "r+b") as file:  # noqa: PTH123 - the one that is not watched
                    file.seek(0, os.SEEK_END)
                    file.write(more[: len(more) // 2])
            self._act()


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


CHANGING = ("fsync", "replace", "unlink", "truncate", "mkdir")
"""The functions of `os` that change files, besides opening and writing."""


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Tell somebody of all calls of this process that change files, while the block runs."""
    before = {name: getattr(os, name) for name in CHANGING}
    opened = io.open

    def wrapped(name: str) -> Callable[..., Any]:
        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            path = Path(f"/proc/self/fd/{target}").readlink() if name == "fsync" else target
            watcher.reached(name, str(path), arguments[0] if arguments else None)
            return before[name](target, *arguments, **options)

        return call

    def open_watched(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> IO[Any]:
        file = opened(path, mode, *arguments, **options)
        if "b" not in mode or not set(mode) & set("wxa"):
            return file
        try:
            watcher.reached("create", str(path))
        except OSError:
            file.close()
            raise
        return _Written(file, watcher, str(path))  # type: ignore[return-value]

    for name in before:
        setattr(os, name, wrapped(name))
    io.open = open_watched  # type: ignore[assignment]
    try:
        yield
    finally:
        io.open = opened
        for name, original in before.items():
            setattr(os, name, original)


class _Written:
    """A file whose writes are told."""

    def __init__(self, file: IO[bytes], watcher: Watcher, path: str) -> None:
        self._file, self._watcher, self._path = file, watcher, path

    def write(self, content: bytes) -> int:
        self._file.flush()  # so that what was written before is there if this is the end
        self._watcher.reached("write", self._path, bytes(content))
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
