"""Atomic writes and checksums of files."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

TEMPORARY = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\.tmp")
"""The names of files while they are being written."""


def write_atomically(path: Path, content: bytes | Iterable[bytes | memoryview]) -> str:
    """Write a file so that a crash leaves the old one or the new one, never half of either.

    The content may come in parts. Returns its SHA-256 digest in hexadecimal.
    """
    digest = hashlib.sha256()
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with partial.open("xb") as file:
            for part in (content,) if isinstance(content, bytes) else content:
                file.write(part)
                digest.update(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:  # an interrupt must not leave half a file either
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return digest.hexdigest()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, so that a power cut does not take them away again."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    # The new name must reach the disk as well, or a power cut could bring the old file back.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
