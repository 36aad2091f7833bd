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
from benchmarks.run import in_new_process
from benchmarks.suites import (
    DOUBLE,
    PLAIN,
    Contest,
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
SINGLE = 1e-4
"""Largest allowed difference in single precision, in which rounds are timed.

A round moves some entry of each module by 2e-3 to 2e-2. Sums in another order change entries by
1e-7, and a unit that for one sample comes out on the other side of zero by up to 5e-6, so that
another simulator with batch normalisation was off by 1.2e-5.
"""

Sizes = tuple[int, int, int]
"""Devices, samples of each, and samples in a mini-batch."""


def contest_of(
    name: str, sizes: Sizes, repeats: int, peers: Path | None
) -> tuple[list[Measurement], dict[str, str]]:
    """Return what a contest of ours, a plain loop and the peers gave, and the peers' versions.

    Ours is checked in single precision, as it is timed, and in double precision, both with what it
    drops. The others, which drop other units, are checked with a module in its stead.
    """
    with ExitStack() as stack, as_in_a_run():
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        workload = workloads.module_workload(name, *sizes)
        others = math.inf if name in STANDS_IN else SINGLE
        contest = contest_with_ours(workload, SINGLE, stack, others=others)
        exact = contest_with_ours(workloads.in_double(workload), DOUBLE, stack)
        copy_differences(contest, exact)
        if name in STANDS_IN:
            compared = workloads.module_workload(STANDS_IN[name], *sizes)
            exact = Contest(workloads.in_double(compared), 1, DOUBLE)
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
        # In a process of its own: else the memory of one would be that of all before it as well.
        rows, found = in_new_process(name, contest_of, name, sizes, repeats, peers)
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
            f"A mini-batch has {batch} samples, and every module a process of its own. Speed is "
            "that of ours beside the plain loop on one thread or on all, whichever is faster. The "
            "difference is that of the first rounds in double precision; in single precision, as "
            f"rounds are timed, nobody is further from the reference than {SINGLE:g}. Ours drops "
            "units as the reference does. The plain loop and the other simulators drop others, so "
            "they are compared with a dropout of zero, in double precision.",
            mkl_note(),
        ],
        machine=machine(),
        versions=used | versions(),
    )
