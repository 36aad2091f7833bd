"""The suite of eight modules of users: ours beside a plain loop and the fastest peer."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import workloads
from benchmarks.peers.user_modules import MODULES
from benchmarks.results import Measurement, Requirement, Suite
from benchmarks.suites import (
    DOUBLE,
    PLAIN,
    contest_with_ours,
    copy_differences,
    fastest_peer,
    mkl_note,
)
from benchmarks.timing import as_in_a_run, ratio
from ebbflow.runs.environment import machine, versions

STANDS_IN = {"Dropout": "Dropout that drops nothing"}
"""Modules that draw, and those by which contenders are compared that draw otherwise than ours."""
TABLE = tuple(name for name in MODULES if name not in STANDS_IN.values())
Sizes = tuple[int, int, int]
"""Devices, samples of each, and samples in a mini-batch."""


def contest_of(
    name: str, sizes: Sizes, repeats: int, peers: Path | None
) -> tuple[list[Measurement], dict[str, str]]:
    """Return what a contest of ours, a plain loop and the peers gave, and the peers' versions."""
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        workload = workloads.module_workload(name, *sizes)
        contest = contest_with_ours(workload, math.inf, stack)
        compared = workloads.module_workload(STANDS_IN.get(name, name), *sizes)
        exact = contest_with_ours(workloads.in_double(compared), DOUBLE, stack)
        copy_differences(contest, exact)
        contest.add_plain_loop(scratch, stack, exact)
        if peers is not None:
            contest.add_peers(peers, scratch, stack, exact)
        rows = contest.run(repeats)
    return rows, contest.versions


def modules(
    repeats: int,
    peers: Path | None = None,
    names: Sequence[str] = TABLE,
    sizes: Sizes = (20, 160, 32),
) -> Suite:
    """Time a round of each module; nowhere should ours take longer than the plain loop."""
    measurements: list[Measurement] = []
    requirements: list[Requirement] = []
    used: dict[str, str] = {}
    for name in names:
        rows, found = contest_of(name, sizes, repeats, peers)
        used |= found
        ours, *others = rows
        (plain,) = (row for row in others if row.name == PLAIN)
        peer = fastest_peer(others)
        shown = [plain, *(row for row in others if row.name == peer)]
        measurements.append(ours.model_copy(update={"name": name}))
        measurements += [row.model_copy(update={"name": f"{name}, {row.name}"}) for row in shown]
        speed = ratio(plain.seconds, ours.seconds)
        requirements.append(Requirement(what=f"{name}, speed", value=speed, bound=1, at_least=True))
    devices, samples, batch = sizes
    return Suite(
        name="modules",
        title=f"eight modules of users, {devices} devices, {samples} samples each",
        measurements=measurements,
        requirements=requirements,
        notes=[
            f"A mini-batch has {batch} samples. Speed is that of ours beside the plain loop on one "
            "thread or on all, whichever is faster. The difference is that of the first rounds in "
            "double precision; the module with dropout is compared with dropout of zero.",
            mkl_note(),
        ],
        machine=machine(),
        versions=used | versions(),
    )
