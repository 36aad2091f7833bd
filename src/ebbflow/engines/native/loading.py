"""Loads the library of compiled kernels, or says why it cannot be used."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from types import SimpleNamespace

import torch

LIBRARY = Path(__file__).with_name("_kernels.so")
_WIDER = "_avx512"  # how the names of functions end that were compiled for 512-bit vectors


def loaded(*functions: str) -> SimpleNamespace | str:
    """Return functions of the library by their names, or why they cannot be used.

    Each is there for 256-bit and for 512-bit vectors, with the same bits as a result; which one is
    taken follows torch, and so ``ATEN_CPU_CAPABILITY`` too.
    """
    if not LIBRARY.exists():
        return "it was not built when ebbflow was installed, for want of a C compiler that works"
    capability = torch.backends.cpu.get_cpu_capability()
    x86 = platform.machine() in ("x86_64", "AMD64")
    if x86 and capability not in ("AVX2", "AVX512"):
        if limit := os.environ.get("ATEN_CPU_CAPABILITY"):
            return f"it needs AVX2, and ATEN_CPU_CAPABILITY={limit} holds torch below that"
        return "it needs AVX2, which the processor does not have"
    ending = _WIDER if x86 and capability == "AVX512" else ""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        return SimpleNamespace(**{name: getattr(found, name + ending) for name in functions})
    except (OSError, AttributeError) as error:  # built for another system, or damaged
        return f"it cannot be loaded ({error})"
