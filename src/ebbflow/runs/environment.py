"""The machine and the versions that results were computed with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("ebbflow", "torch", "numpy")
_BF16 = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}


def _field(path: str, name: str) -> str:
    """Return the value of the first line with this name in a /proc file."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def has_bf16() -> bool:
    """Whether the processor has instructions for bfloat16."""
    flags = _field("/proc/cpuinfo", "flags") or _field("/proc/cpuinfo", "Features")
    return bool(_BF16 & set(flags.split()))


def instructions() -> str:
    """Return which instruction sets torch, oneDNN and MKL use."""
    # Reading and comparing results needs no torch.
    from ebbflow.core import processor  # noqa: PLC0415

    return processor.described(processor.instructions())


def machine() -> dict[str, str]:
    """Return a description of the machine, as far as it is known."""
    memory = _field("/proc/meminfo", "MemTotal").split()
    release = platform.release().partition("-")[0]
    facts = {
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "family, model": f"{_field('/proc/cpuinfo', 'cpu family')}, "
        f"{_field('/proc/cpuinfo', 'model')}",
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(memory[0]) / 2**20:.0f} GiB" if memory else "",
        "system": f"{platform.system()} {release} {platform.machine()}",
        "bfloat16 instructions": "yes" if has_bf16() else "no",
        "instructions": instructions(),
    }
    return {key: value for key, value in facts.items() if value.strip(", ")}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}
