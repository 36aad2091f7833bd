"""Memory that is asked for again and again should not be returned to the system in between."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# The numbers of glibc's mallopt(3), and what it starts with.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEEPING = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 64 * 2**20}
_USUAL = {_MMAP_MAX: 65_536, _TRIM_THRESHOLD: 128 * 2**10, _TOP_PAD: 128 * 2**10}


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let freed tensors be used again instead of being unmapped, until the block ends.

    glibc maps a vector of a large model afresh each time, and the kernel has to clear its pages:
    that can take a third of a round. Where there is no glibc, nothing happens.
    """
    library = ctypes.CDLL(None)
    mallopt, trim = getattr(library, "mallopt", None), getattr(library, "malloc_trim", None)
    if mallopt is None or trim is None:
        yield
        return
    for option, value in _KEEPING.items():
        mallopt(option, value)
    try:
        yield
    finally:
        for option, value in _USUAL.items():
            mallopt(option, value)
        trim(0)
