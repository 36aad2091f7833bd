"""Freed memory is kept for a block, and what can be restored after it is."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest

import ebbflow
from ebbflow.core import malloc
from ebbflow.core.malloc import kept_memory, use_one_arena

TRIM, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -2, -3, -4, -8
KEPT = {MMAP_MAX: 0, TRIM: -1, TOP_PAD: 64 * 2**20}
SETTINGS = ("GLIBC_TUNABLES", *(name for name in os.environ if name.startswith("MALLOC_")))


class Library:
    """A glibc that only takes note of its options."""

    def __init__(self) -> None:
        self.options: dict[int, int] = {}
        self.trimmed = 0

    def mallopt(self, option: int, value: int) -> int:
        self.options[option] = value
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.trimmed += 1
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    noted = Library()
    monkeypatch.setattr(malloc, "_glibc", lambda: noted)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return noted


def test_every_option_that_is_set_is_restored(library: Library) -> None:
    with kept_memory():
        assert library.options == KEPT
    assert library.options.keys() == KEPT.keys() | {MMAP_THRESHOLD}
    assert library.options[MMAP_MAX] == 65_536
    assert library.options[TOP_PAD] == 128 * 2**10
    # Where glibc's own adjusting ends: it cannot be switched on again.
    assert library.options[MMAP_THRESHOLD] == 32 * 2**20
    assert library.options[TRIM] == 64 * 2**20
    assert library.trimmed == 1


def test_so_it_is_after_an_error(library: Library) -> None:
    with pytest.raises(KeyboardInterrupt), kept_memory():
        raise KeyboardInterrupt
    assert library.options[MMAP_MAX] == 65_536


@pytest.mark.parametrize(
    "environment",
    [
        {"MALLOC_MMAP_MAX_": "7", "MALLOC_TRIM_THRESHOLD_": "4096", "MALLOC_ARENA_MAX": "2"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=7:x:glibc.malloc.trim_threshold=0x1000"},
        {"MALLOC_MMAP_MAX_": "7", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=4096"},
    ],
)
def test_what_the_environment_asks_for_comes_back(
    library: Library, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with kept_memory():
        assert library.options == KEPT
    # Whoever asks for one of them switches glibc's adjusting of the others off.
    usual = 128 * 2**10
    assert library.options == {MMAP_MAX: 7, TRIM: 4096, MMAP_THRESHOLD: usual, TOP_PAD: usual}


def test_the_last_of_several_blocks_restores(library: Library) -> None:
    with kept_memory():
        with kept_memory():
            pass
        assert library.options == KEPT
        inside, over = threading.Event(), threading.Event()

        def another() -> None:
            with kept_memory():
                inside.set()
                over.wait()

        thread = threading.Thread(target=another)
        thread.start()
        inside.wait()
    assert library.options == KEPT
    over.set()
    thread.join()
    assert library.options[MMAP_MAX] == 65_536
    assert library.trimmed == 1


def test_a_run_leaves_the_arenas_alone(library: Library) -> None:
    ebbflow.compare("digits", sessions=1, rounds=1, devices=2, seeds=[1])
    assert library.options.keys() == KEPT.keys() | {MMAP_THRESHOLD}
    use_one_arena()
    assert library.options[ARENA_MAX] == 1


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_not_asked(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: object) -> None:
        raise TypeError(name)  # as on Windows

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with kept_memory():
        use_one_arena()


@pytest.mark.parametrize("found", [object(), OSError("Dynamic loading not supported")])
def test_other_c_libraries_are_left_alone(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: object) -> object:
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(ctypes, "CDLL", load)
    with kept_memory():
        use_one_arena()


# --- glibc itself --------------------------------------------------------------------------------

SCRIPT = """
import ctypes, sys, threading
from ebbflow.core.malloc import kept_memory, use_one_arena

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_int) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo.restype = Info
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def is_mapped(size):
    before = libc.mallinfo().hblks
    block = libc.malloc(size)
    mapped = libc.mallinfo().hblks > before
    libc.free(block)
    return mapped

def show(when):
    print(when, [is_mapped(size << 20) for size in (100, 20)])

if "one" in sys.argv:
    use_one_arena()
show("before")
with kept_memory():
    show("within")
show("after")
many = threading.Barrier(4)
def take():
    block = libc.malloc(1000)
    many.wait()
    libc.free(block)
threads = [threading.Thread(target=take) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.stdout.flush()
stdout = ctypes.c_void_p.in_dll(libc, "stdout")
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


@pytest.mark.skipif(malloc._glibc() is None, reason="needs glibc")
@pytest.mark.parametrize("arenas", ["many", "one"])
def test_glibc_maps_large_blocks_before_and_after_but_not_within(arenas: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, arenas],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    before, within, after, *info = done.stdout.splitlines()
    assert before == "before [True, True]"
    assert within == "within [False, False]"
    assert after == "after [True, False]"  # no more than after freeing a block of 32 MiB
    heaps = sum(line.startswith("<heap nr=") for line in info)
    assert heaps == 1 if arenas == "one" else heaps > 1
