"""The processor instructions in use: only with the same ones does a seed give the same bits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
# oneDNN's names, least capable first, and the flags that Linux reports for each.
_ONEDNN = {
    "SSE41": {"sse4_1"},
    "AVX": {"avx"},
    "AVX2": {"avx2"},
    "AVX2_VNNI": {"avx_vnni"},
    "AVX2_VNNI_2": {"avx_vnni_int8", "avx_ne_convert"},
    "AVX512_CORE": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "AVX512_CORE_VNNI": {"avx512_vnni"},
    "AVX512_CORE_BF16": {"avx512_bf16"},
    "AVX512_CORE_FP16": {"avx512_fp16"},
    "AVX512_CORE_AMX": {"amx_tile", "amx_int8", "amx_bf16"},
    "AVX512_CORE_AMX_FP16": {"amx_fp16"},
}
_USED = ("torch", "oneDNN", "MKL_CBWR")
_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


def flags() -> frozenset[str]:
    """Return the processor's flags as Linux reports them; none on other systems."""
    return frozenset(_told("flags", "Features").split())


def maker() -> str:
    """Return who made the processor, as it names itself; "unknown" where nothing says so."""
    return _told("vendor_id", "CPU implementer") or "unknown"


def _told(*names: str) -> str:
    """Return what Linux tells of a processor under one of these names; nothing elsewhere."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""


def instructions() -> dict[str, str]:
    """Return the instruction sets that torch, oneDNN and MKL use, and the variables that are set.

    oneDNN does not report its set: it follows from the processor's flags and the limit that
    ``ONEDNN_MAX_CPU_ISA`` sets, and is left out if the flags are unknown.
    """
    import torch  # noqa: PLC0415 - what reads and compares results needs no torch

    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA", "")
    settings = {
        "torch": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": onednn_instructions(flags(), limit),
        "MKL_CBWR": os.environ.get("MKL_CBWR", ""),
        **{name: os.environ.get(name, "") for name in _VARIABLES},
    }
    return {name: value for name, value in settings.items() if value}


def onednn_instructions(flags: frozenset[str], limit: str = "") -> str:
    """Return the best of oneDNN's instruction sets that the flags allow, up to the limit.

    >>> flags = frozenset({"sse4_1", "avx", "avx2"})
    >>> onednn_instructions(flags), onednn_instructions(flags, "AVX")
    ('AVX2', 'AVX')
    """
    best = ""
    for name, needed in _ONEDNN.items():
        if needed <= flags:
            best = name
        if name == limit.upper():
            break
    return best


def described(used: Mapping[str, str]) -> str:
    """Return instruction sets as text, without the variables that determine them.

    >>> described({"torch": "AVX2", "oneDNN": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"})
    'torch AVX2, oneDNN AVX2'
    """
    return ", ".join(f"{name} {used[name]}" for name in _USED if name in used)
