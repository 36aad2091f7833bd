"""Locks that the kernel frees when their process dies, whatever it died of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder

PATIENCE = 0.2
"""Seconds to wait for a lock: who asks whether it is held has it for a few microseconds."""
LONG = 30.0
"""Seconds to wait for a process that writes a small file."""


def taken(path: Path, patience: float = PATIENCE) -> BaseFileLock | None:
    """Return the lock of a file that is ours from now on, or None if another process has it.

    Its folder is made if there is none.
    """
    lock: BaseFileLock = FileLock(path)
    try:
        make_folder(path.parent)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said below, in a sentence
            lock.acquire(timeout=patience)
    except Timeout:
        return None
    except (NotImplementedError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EbbflowError(
            f"{path} cannot be locked ({reason}): a sweep needs a folder that can be written to, "
            "on a file system with locks"
        ) from None
    if isinstance(lock, SoftFileLock):
        # Such a lock stays behind when its process dies.
        lock.release()
        raise EbbflowError(
            f"{path.parent} is on a file system without locks: choose a local disk, NFS of version "
            "4, or Lustre mounted with flock"
        )
    return lock


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file for a moment; raise an error if another process keeps it."""
    lock = taken(path, LONG)
    if lock is None:
        raise EbbflowError(
            f"another process has held {path} for {LONG:g} seconds: wait for it, or end it"
        )
    try:
        yield
    finally:
        lock.release()
