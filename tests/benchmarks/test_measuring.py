"""Time and memory: contenders take turns, and the peak is seen."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from benchmarks.memory import PeakMemory, anonymous, family
from benchmarks.timing import alternate, as_in_a_run, ratio, threads, timed

linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")  # noqa: PTH112


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def noted(name: str) -> float:
        order.append(name)
        return float(len(order))

    seconds = alternate({"a": lambda: noted("a"), "b": lambda: noted("b")}, 3)
    assert order == ["a", "b"] * 3
    assert seconds == {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}
    assert ratio(seconds["b"], seconds["a"]) == pytest.approx(4 / 3)


def test_seconds_are_those_of_the_work() -> None:
    assert timed(lambda: time.sleep(0.02))() >= 0.02


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="stop"), threads(1):
        assert torch.get_num_threads() == 1
        raise RuntimeError("stop")
    with as_in_a_run():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@linux
def test_the_peak_is_seen_though_it_is_over() -> None:
    before = anonymous(os.getpid())
    with PeakMemory(interval=0.005) as peak:
        held = bytearray(b"x" * (64 * 2**20))
        patience = time.monotonic() + 30  # a busy machine may delay the sampler
        while peak.bytes < before + 60 * 2**20 and time.monotonic() < patience:
            time.sleep(0.01)
        del held
    assert peak.bytes >= before + 60 * 2**20


@linux
def test_children_are_of_the_family_and_count() -> None:
    text = "import sys; held = bytearray(b'x' * 2**26); print('here', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in family(os.getpid())
    with PeakMemory() as peak:
        pass
    child.communicate(b"\n")
    assert peak.bytes >= anonymous(os.getpid()) + 60 * 2**20
    assert child.pid not in family(os.getpid())


@linux
def test_a_process_that_is_gone_takes_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert anonymous(child.pid) == 0
    assert family(child.pid) == [child.pid]
