"""The sweep that is tried: 24 small cells on the digits and on part of MNIST."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.trials import Say
from ebbflow import experiment
from ebbflow.runs.records import METRICS
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.plan import SweepPlan
from ebbflow.sweeps.planning import plan_of, wish_of_file
from ebbflow.sweeps.starting import prepared, write

SWEEP = """\
name = "killed"

[base]
methods = ["learned", "warm_start", "previous"]
sessions = 4
rounds = {rounds}

[base.partition]
devices = 6

[[cells]]
name = "digits"
dataset = "digits"
sessions = 6

[[cells]]
name = "mnist"
dataset = "mnist"
data.limit_train = 6000
data.limit_test = 1000

[grid]
algorithm = ["fedavg", "scaffold"]
partition.alpha = [0.3, 0.7]
seeds = "{seeds}"
"""


def planned(folder: Path, rounds: int = 100, seeds: str = "1-3") -> SweepFolder:
    """SweepPlan the sweep in a folder, which no worker has begun with."""
    file = folder.with_suffix(".toml")
    file.write_text(SWEEP.format(rounds=rounds, seeds=seeds))
    sweep = SweepFolder(folder)
    write(prepared(plan_of(wish_of_file(file)), sweep, 2))
    return sweep


class SingleRuns(NamedTuple):
    """What every cell records of its rounds when it is run by itself, and the seconds of all."""

    lines: dict[str, bytes]
    seconds: float


def single_runs(plan: SweepPlan, folder: Path, say: Say) -> SingleRuns:
    """Run every cell by itself, as `ebbflow compare` does."""
    found = {}
    began = time.monotonic()
    for cell in plan.cells:
        experiment.run(cell.config, folder / cell.name)
        found[cell.name] = (folder / cell.name / METRICS).read_bytes()
    say(f"{len(found)} single runs are there to compare with")
    return SingleRuns(found, time.monotonic() - began)


def outcome(sweep: SweepFolder, single: SingleRuns) -> dict[str, Any]:
    """Return what came of a sweep: what is done, what is equal, and what was begun how often."""
    claims, plan = Claims(sweep.path), sweep.plan()
    attempts = {cell.name: claims.attempts(cell.name) for cell in plan.cells}
    return {
        "cells": len(plan.cells),
        "done": sum((sweep.run_folder(cell.name) / "summary.json").exists() for cell in plan.cells),
        "equal": sum(
            (sweep.run_folder(name) / METRICS).read_bytes() == lines
            for name, lines in single.lines.items()
            if (sweep.run_folder(name) / METRICS).exists()
        ),
        "attempts": sum(map(len, attempts.values())),
        "resumed": sum(each["checkpoint"] > 0 for own in attempts.values() for each in own),
        "begun anew though saved": sum(begun_anew(own) for own in attempts.values()),
        "begun twice before anything was saved": sum(
            sum(each["checkpoint"] == 0 for each in own) - 1 for own in attempts.values()
        ),
    }


def begun_anew(attempts: Sequence[Any]) -> int:
    """Return how often a cell was begun from its beginning after it had been saved."""
    saved, count = False, 0
    for attempt in attempts:
        count += saved and attempt["checkpoint"] == 0
        saved = saved or attempt["checkpoint"] > 0
    return count
