"""Whether a worker computes what the driver would: same processor, kernels, versions and data.

Otherwise a result would depend on which worker trained which devices, and nobody could tell.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

import ebbflow
from ebbflow.cluster import probe
from ebbflow.core import processor

INSTRUCTIONS, MAKER, KERNEL, GPU, DATA = "instructions", "maker", "kernel", "gpu", "data"
PASSED_ON = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
"""Variables that decide about a processor's instructions; workers get the driver's."""

_NAMES = {
    INSTRUCTIONS: "the processor instructions",
    MAKER: "a processor made by",
    KERNEL: "fused kernels that compute",
    GPU: "the GPU",
    DATA: "data with the digest",
}
_HOLD = (
    "set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 for the run, which all workers "
    "follow, or take the node out of the cluster"
)
_REMEDIES = {
    INSTRUCTIONS: _HOLD,
    MAKER: "set MKL_CBWR=COMPATIBLE for the run, which all workers follow, or take the node out of "
    "the cluster",
    KERNEL: "install ebbflow there with the same C compiler and library, or set engine.fused = "
    "false",
    GPU: "use nodes with the same GPU as the machine on which the run is started",
    DATA: "start the run again, with the data that it has now",
}


def facts(data_digest: str, *, device: str, kernel: bool) -> dict[str, str]:
    """Return what must be the same on all machines for equal bits.

    Args:
        data_digest: Of the data that this process has.
        device: Where this process trains, as torch calls it.
        kernel: Whether the fused kernels are used where they were built.
    """
    known = {name: version(name) for name in ("torch", "numpy")}
    known["ebbflow"] = f"{ebbflow.__version__} ({_sources()})"
    if torch.device(device).type == "cuda":
        known[GPU] = torch.cuda.get_device_name(device)
    else:
        known[INSTRUCTIONS] = processor.described(processor.instructions())
        if not _alike_on_all_makers():
            known[MAKER] = processor.maker()
        if kernel:
            known[KERNEL] = probe.results()
    return known | {DATA: data_digest}


def _alike_on_all_makers() -> bool:
    """Whether MKL was asked for results that do not depend on who made the processor.

    It obeys other values on Intel's processors alone, and spellings in lower case nowhere.
    """
    return os.environ.get("MKL_CBWR", "").partition(",")[0] == "COMPATIBLE"


@cache
def _sources() -> str:
    """Return a digest of the package's sources: a checkout may differ within a version."""
    digest = hashlib.blake2b(digest_size=4)
    folder = Path(ebbflow.__file__).parent
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.c")]):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return f"sources {digest.hexdigest()}"


def disagreement(node: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """Return a sentence on the first thing in which a node differs; nothing if it does not.

    >>> print(disagreement("10.0.0.7", {"torch": "2.9.0"}, {"torch": "2.9.1"}))
    node 10.0.0.7 has torch 2.9.0, and here it is 2.9.1: install the same version there
    """
    for name, mine in ours.items():
        other = theirs.get(name, "unknown")
        if other != mine:
            what = _NAMES.get(name, name)
            remedy = _REMEDIES.get(name, "install the same version there")
            return f"node {node} has {what} {other}, and here it is {mine}: {remedy}"
    return ""
