"""Memory that is asked for again and again should not be returned to the system in between."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# The numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8
_KEEPING = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 64 * 2**20}
# What glibc starts with. As long as nobody has chosen any of the four, it raises the first two when
# a process frees larger and larger blocks, up to these limits.
_DEFAULTS = {
    _MMAP_THRESHOLD: 128 * 2**10,
    _TRIM_THRESHOLD: 128 * 2**10,
    _TOP_PAD: 128 * 2**10,
    _MMAP_MAX: 65_536,
}
_RAISED = {_MMAP_THRESHOLD: 32 * 2**20, _TRIM_THRESHOLD: 64 * 2**20}
_NAMES = {
    "mmap_threshold": _MMAP_THRESHOLD,
    "trim_threshold": _TRIM_THRESHOLD,
    "top_pad": _TOP_PAD,
    "mmap_max": _MMAP_MAX,
}


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let freed tensors be used again instead of being unmapped, until the block ends.

    glibc maps a vector of a large model afresh each time, and the kernel has to clear its pages:
    that can take a third of a round. Where there is no glibc, nothing happens.

    The settings belong to the whole process and cannot be read. At the end of the block (of the
    last one, where several overlap) they become what the environment asks for, or else glibc's
    defaults. Two things cannot be brought back: what the program itself has set by mallopt, and
    the raising of two thresholds as larger blocks are freed. Those thresholds are left at their
    upper limits; at their defaults, every tensor above 128 KiB would be mapped afresh from then on.
    """
    library = _glibc()
    if library is None:
        yield
        return
    _blocks.enter(library)
    try:
        yield
    finally:
        _blocks.leave(library)


def use_one_arena() -> None:
    """Let all threads of this process share one pool of memory, which large models need less of.

    On two workers ResNet-18 takes half as much memory again without it. It cannot be undone once a
    thread has asked for memory: call it in a process of our own, never in a user's.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_ARENA_MAX, 1)


def _glibc() -> ctypes.CDLL | None:
    """Return this process's C library if it is glibc: no other has these settings."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
    except OSError:  # a static program cannot look into itself
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


class _Blocks:
    """Counts the blocks that are running: the first sets the options, the last restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0

    def enter(self, library: ctypes.CDLL) -> None:
        with self._lock:
            if self._running == 0:
                _set(library, _KEEPING)
            self._running += 1

    def leave(self, library: ctypes.CDLL) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                _set(library, _outside(os.environ))
                library.malloc_trim(0)


_blocks = _Blocks()


def _set(library: ctypes.CDLL, options: Mapping[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)


def _outside(environment: Mapping[str, str]) -> dict[int, int]:
    """Return the options for the time after a block, as far as they are known."""
    asked_for = _asked_for(environment)
    return _DEFAULTS | (asked_for or _RAISED)


def _asked_for(environment: Mapping[str, str]) -> dict[int, int]:
    """Return the options that the environment sets, by either of glibc's ways.

    >>> _asked_for({"MALLOC_TOP_PAD_": "4096", "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0x10"})
    {-2: 4096, -4: 16}
    """
    texts = dict(
        pair.split("=", maxsplit=1)
        for pair in environment.get("GLIBC_TUNABLES", "").split(":")
        if "=" in pair
    )
    options = {}
    for name, option in _NAMES.items():
        text = environment.get(f"MALLOC_{name.upper()}_", texts.get(f"glibc.malloc.{name}", ""))
        try:
            options[option] = int(text, base=0)
        except ValueError:  # not set, or not a number: glibc takes no notice either
            continue
    return options
