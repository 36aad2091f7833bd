"""The machine and the versions that results were computed with."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ebbflow.core import processor
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records

if TYPE_CHECKING:
    from ebbflow.core.types import Dataset

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
    return bool(_BF16 & processor.flags())


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
        "instructions": processor.described(processor.instructions()),
    }
    return {key: value for key, value in facts.items() if value.strip(", ")}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


# --- a run's environment.json --------------------------------------------------------------------


def fingerprint(dataset: Dataset) -> str:
    """Return a digest of every sample and label, and of samples' owners where they have any."""
    digest = hashlib.blake2b(digest_size=16)
    for split in (dataset.train, dataset.test):
        for tensor in (split.x, split.y):
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
        if split.device is not None:
            digest.update(b"owners")
            digest.update(split.device.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def check_data(folder: Path, data: Dataset) -> None:
    """Raise an error if the data are not those that a run was started with."""
    path = folder / records.ENVIRONMENT
    before = records.read_sealed(path).get("dataset")
    if not isinstance(before, dict) or "digest" not in before:
        raise EbbflowError(f"{path} names no data set: {records.RESTORE}")
    if before["digest"] != fingerprint(data):
        raise EbbflowError(
            f"the data set {data.name} is not the one that {folder} was started with "
            "(its digest differs): restore the data, or start a new run"
        )


def note_environment(folder: Path, data: Dataset) -> None:
    """Record the environment of the run; on resuming, raise an error if the data has changed."""
    path = folder / records.ENVIRONMENT
    if path.exists():
        check_data(folder, data)
        return
    libraries = ("ebbflow", "torch", "numpy", "safetensors", "pydantic")
    records.write_sealed(
        path,
        {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "instructions": processor.instructions(),
            "versions": {name: version(name) for name in libraries},
            "dataset": {
                "name": data.name,
                "train": len(data.train),
                "test": len(data.test),
                "classes": data.classes,
                **({"labels": list(data.labels)} if data.labels else {}),
                "digest": fingerprint(data),
            },
        },
        indent=1,
    )


def other_instructions(folder: Path, *, longer: bool = False) -> str | None:
    """Return a warning if resuming a run would use other processor instructions than its start.

    None for a finished run, unless it is about to be made ``longer``, and for one of a version that
    did not record them.
    """
    path = folder / records.ENVIRONMENT
    finished = (folder / records.SUMMARY).exists() and not longer
    if not path.exists() or finished:
        return None
    before, now = records.read_sealed(path).get("instructions"), processor.instructions()
    if not isinstance(before, dict) or processor.described(before) == processor.described(now):
        return None
    return (
        "the run was started with other instructions of the processor "
        f"({processor.described(before)}) than are used now ({processor.described(now)}): what "
        "follows may differ from what an uninterrupted run gives; to hold torch and oneDNN to "
        "the same ones, set ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA"
    )
