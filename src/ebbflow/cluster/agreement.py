"""Whether a worker computes what the driver would: same instructions, versions and data.

Otherwise a result would depend on which worker trained which devices, and nobody could tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import ebbflow
from ebbflow.core import processor
from ebbflow.engines import native

INSTRUCTIONS, KERNEL, DATA = "instructions", "kernel", "data"
PASSED_ON = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
"""Variables that decide about a processor's instructions; workers get the driver's."""

_NAMES = {
    INSTRUCTIONS: "the processor instructions",
    KERNEL: "a fused kernel that is",
    DATA: "data with the digest",
}
_HOLD = (
    "set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 for the run, which all workers "
    "follow, or take the node out of the cluster"
)
_REMEDIES = {
    INSTRUCTIONS: _HOLD,
    KERNEL: "install ebbflow there with a C compiler, or set engine.fused = false",
    DATA: "start the run again, with the data that it has now",
}


def facts(data_digest: str, *, on_cpu: bool, kernel: bool) -> dict[str, str]:
    """Return what must be the same on all machines for equal bits.

    Args:
        data_digest: Of the data that this process has.
        on_cpu: Whether training is the processor's work, so that its instructions matter.
        kernel: Whether the fused kernel is used where it was built.
    """
    known = {name: version(name) for name in ("torch", "numpy")}
    known["ebbflow"] = f"{ebbflow.__version__} ({_sources()})"
    if on_cpu:
        known[INSTRUCTIONS] = processor.described(processor.instructions())
    if on_cpu and kernel:
        known[KERNEL] = f"missing ({native.why_missing()})" if native.why_missing() else "there"
    return known | {DATA: data_digest}


@cache
def _sources() -> str:
    """Return a digest of the package's modules: a checkout may differ within a version."""
    digest = hashlib.blake2b(digest_size=4)
    folder = Path(ebbflow.__file__).parent
    for path in sorted(folder.rglob("*.py")):
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
