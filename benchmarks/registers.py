"""What the multiply-adds of a workload's products take at the processor's peak."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ebbflow.core.processor import instructions

SOURCE = Path(__file__).with_suffix(".c")
LEAST = 0.1  # seconds
_VECTORS = {"AVX2": (32, "-mavx2"), "AVX512": (64, "-mavx512f")}
"""By what torch uses: the bytes of a vector, and what tells the compiler that there are such."""


class Registers:
    """So many multiply-adds on vectors that never leave the registers, shared among workers.

    They are over in a few milliseconds, in which both workers may still be on one core. So they are
    repeated until that takes `LEAST`, and the time of all is divided by how often.
    """

    def __init__(self, library: Path, multiply_adds: int, workers: int) -> None:
        size, _ = _VECTORS[instructions()["torch"]]
        self._function = ctypes.CDLL(str(library)).multiply_adds
        self._function.argtypes = (ctypes.c_int64, ctypes.c_void_p)
        self._function.restype = None
        self._vectors = -(-multiply_adds // (size // 4 * workers))
        # All ones and zeros: what is computed stays finite, and no number is denormal.
        self._values = [np.zeros(size // 4, dtype=np.float32) for _ in range(workers)]
        self._pool = ThreadPoolExecutor(workers, "registers")
        self.times = 1
        while self() * self.times < LEAST:
            self.times *= 2

    def __call__(self) -> float:
        """Return the seconds of making them once."""
        start = time.perf_counter()
        for _ in self._pool.map(self._make, self._values):
            pass
        return (time.perf_counter() - start) / self.times

    def _make(self, values: np.ndarray) -> None:
        self._function(self.times * self._vectors, values.ctypes.data)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()


def compiled(folder: Path) -> Path | None:
    """Return the compiled loop; None if there is no compiler or torch uses other vectors."""
    compiler = shutil.which("cc")
    if compiler is None or instructions()["torch"] not in _VECTORS:
        return None
    size, flag = _VECTORS[instructions()["torch"]]
    library = folder / "registers.so"
    subprocess.run(
        [
            *(compiler, "-O3", "-fPIC", "-shared", flag, "-mfma", f"-DBYTES={size}"),
            *(str(SOURCE), "-o", str(library)),
        ],
        check=True,
    )
    return library
