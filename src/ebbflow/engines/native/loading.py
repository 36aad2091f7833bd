"""Loads the library of compiled kernels, or says why it cannot be used."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

import torch

LIBRARY = Path(__file__).with_name("_kernels.so")


def loaded(*functions: str) -> ctypes.CDLL | str:
    """Return the library, if it has these functions, or why they cannot be used."""
    if not LIBRARY.exists():
        return "it was not built when ebbflow was installed, for want of a C compiler that works"
    capability = torch.backends.cpu.get_cpu_capability()
    if platform.machine() in ("x86_64", "AMD64") and capability not in ("AVX2", "AVX512"):
        if limit := os.environ.get("ATEN_CPU_CAPABILITY"):
            return f"it needs AVX2, and ATEN_CPU_CAPABILITY={limit} holds torch below that"
        return "it needs AVX2, which the processor does not have"
    try:
        found = ctypes.CDLL(str(LIBRARY))
        for name in functions:
            getattr(found, name)
    except (OSError, AttributeError) as error:  # built for another system, or damaged
        return f"it cannot be loaded ({error})"
    return found
