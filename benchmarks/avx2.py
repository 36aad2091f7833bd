"""W1 held to 256-bit vectors, on a processor that has wider ones: its time, and its bits."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import workloads
from benchmarks.peer_runs import PeerProcess, own_process
from benchmarks.results import Requirement, Suite
from benchmarks.suites import OURS, PRODUCTS, TOLERANCES, Contest, suite_of, time_ratio
from benchmarks.timing import as_in_a_run
from benchmarks.workloads import Workload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.processor import instructions

HELD = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""What holds ebbflow and torch to AVX2; ebbflow then holds MKL to it."""
MKL_HELD = {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}
"""What holds MKL to AVX2 and asks for nothing else: its products alone are no slower for it."""
OURS_HELD, PRODUCTS_HELD = f"{OURS}, held to AVX2", f"{PRODUCTS}, held to AVX2"
BOUND = 0.95


def w1_avx2(repeats: int, peers: Path | None = None, workload: Workload | None = None) -> Suite:
    """Time W1 and its products on 256-bit vectors, and compare the bits with those of wider ones.

    Args:
        repeats: How often each is timed.
        peers: Not used: W1 has them.
        workload: The workload; by default that of W1.
    """
    timed = workload or workloads.softmax_workload()
    named = replace(timed, name="W1-AVX2", title=f"{timed.title}, on 256-bit vectors")
    contest = Contest(named, tolerance=TOLERANCES["W1"])
    if instructions()["torch"] != "AVX512":
        return suite_of(contest, [], [], ["Here torch uses no wider vectors than those: see W1."])
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        ours = {OURS_HELD: HELD, OURS: {}}
        refuse_other_bits(
            [
                contest.add_process(
                    name,
                    own_process("benchmarks.rounds", "fedavg", environment=environment),
                    scratch,
                    stack,
                )
                for name, environment in ours.items()
            ]
        )
        held = own_process("benchmarks.alone", "products", environment=HELD | MKL_HELD)
        contest.add_part(PRODUCTS_HELD, held, scratch, stack)
        measurements = contest.run(repeats)
    requirement = Requirement(
        what="time beside the products alone, both on 256-bit vectors",
        value=time_ratio(measurements, OURS_HELD, PRODUCTS_HELD),
        bound=BOUND,
    )
    note = (
        f"Each has a process of its own. {_set(HELD)} holds ebbflow to 256-bit vectors, and the "
        f"products with {_set(MKL_HELD)}, which MKL obeys on Intel's processors. Nothing is timed "
        "unless ebbflow's models on vectors of 256 and of 512 bits are equal bit by bit."
    )
    return suite_of(contest, measurements, [requirement], [note])


def _set(variables: Mapping[str, str]) -> str:
    return " ".join(f"`{name}={value}`" for name, value in variables.items())


def refuse_other_bits(processes: Sequence[PeerProcess]) -> None:
    """Refuse processes whose models after as many rounds are not equal bit by bit."""
    first, *others = (process.theta() for process in processes)
    if not all(np.array_equal(first, other) for other in others):
        raise EbbflowError(
            f"W1-AVX2: the models of {' and of '.join(each.name for each in processes)} are not "
            "equal bit by bit, so that nothing is timed"
        )
