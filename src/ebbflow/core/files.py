"""Atomic writes and checksums of files."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ebbflow.core.errors import EbbflowError

TEMPORARY = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\.tmp")
"""The names of files while they are being written."""


def write_atomically(path: Path, content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of either.

    The content may come in parts.
    """
    partial = _partial(path)
    parts = iter((content,) if isinstance(content, bytes) else content)
    size = 0

    def needed() -> int:
        return size + sum(map(_bytes_in, parts))

    try:
        with room_named(path, needed), partial.open("xb") as file:
            for part in parts:
                size += _bytes_in(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:  # an interrupt must not leave half a file either
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_digested(path: Path, content: Iterable[bytes | memoryview]) -> str:
    """Write a file like `write_atomically`, and return its SHA-256 digest in hexadecimal."""
    digest = hashlib.sha256()

    def passed() -> Iterator[bytes | memoryview]:
        for part in content:
            digest.update(part)
            yield part

    write_atomically(path, passed())
    return digest.hexdigest()


def _bytes_in(part: bytes | memoryview) -> int:
    return memoryview(part).nbytes


@contextmanager
def room_named(path: Path, needed: Callable[[], int]) -> Iterator[None]:
    """Say how many bytes a file needs and how many are left, if its disk has no room for it."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        disk = os.statvfs(path.parent)
        left = f"{disk.f_bavail * disk.f_frsize:,} bytes left"
        if not disk.f_favail and disk.f_files:
            left = "no room for another file, whatever its size"
        raise EbbflowError(
            f"{path} needs {needed():,} bytes, and its disk or quota has no more room "
            f"({error.strerror}; the disk has {left}): make room, then try again; "
            "`ebbflow resume` goes on with a run"
        ) from error


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that does not exist yet, whole or not at all, never readable by others first.

    If it exists, that is a `FileExistsError`.
    """
    partial = _partial(path)
    try:
        with room_named(path, lambda: len(content)):
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        path.hardlink_to(partial)  # unlike a renaming, this never replaces what is there
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it, so that a power cut does not take them away again.

    Those that are there already keep their mode.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, mode)
    path.mkdir(mode, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    # The new name must reach the disk as well, or a power cut could bring the old file back.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def look_anew(folders: Iterable[Path]) -> None:
    """Let a network file system ask its server what is in folders.

    A machine may remember for up to a minute that a file was not there. It asks when a folder is
    opened, but not when a file in it is looked for.
    """
    for folder in folders:
        with suppress(OSError):  # it is not there, or not for us to read
            os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket: reading it may take for ever."""
    return path.exists() and not (path.is_file() or path.is_dir())


def file_state(path: Path, digest: str) -> str:
    """Return ``ok``, ``missing`` or ``damaged``, judged by a file's digest."""
    if not path.exists():
        return "missing"
    return "ok" if sha256(path.read_bytes()) == digest else "damaged"
