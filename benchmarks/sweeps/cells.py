"""The sweep that is tried: 24 small cells on the digits and on part of MNIST."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.trials import Say
from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.checkpoint import checkpoint_paths, read_checkpoint
from ebbflow.runs.records import METRICS
from ebbflow.sweeps.claims import Claims, checkpoint_number, readable_attempts
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
    """Plan the sweep in a folder, which no worker has begun with."""
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


class Interruption(NamedTuple):
    """An attempt at a cell that was cut off, and what had been saved then.

    ``attempt`` counts the attempts before it; ``checkpoint`` is the number of the newest one, zero
    if nothing was saved, and ``place`` says in words how far that is.
    """

    cell: str
    attempt: int
    checkpoint: int
    place: str


def interruption(sweep: SweepFolder, processes: Collection[int]) -> Interruption | None:
    """Return what these processes, just stopped or killed, had saved of the cell they computed.

    None if they had not begun with any, or if another process has already gone on with it: what
    that one has saved since cannot be told from what was there.
    """
    claims = Claims(sweep.path)
    for cell in sweep.plan().cells:
        for number, attempt in enumerate(readable_attempts(claims, cell.name)):
            if attempt["pid"] not in processes or attempt["state"] == "done":
                continue
            run = sweep.run_folder(cell.name)
            found = Interruption(cell.name, number, checkpoint_number(run), _newest(run))
            alone = len(readable_attempts(claims, cell.name)) == number + 1
            return found if alone else None
    return None


def _newest(run: Path) -> str:
    """Return how far a run's newest checkpoint is, in words."""
    for path in checkpoint_paths(run):
        with suppress(EbbflowError, OSError):  # it was replaced meanwhile
            return read_checkpoint(path).place
    return ""


def outcome(
    sweep: SweepFolder, single: SingleRuns, interruptions: Sequence[Interruption]
) -> dict[str, Any]:
    """Return what came of a sweep: what is done, what is equal, and where cells went on."""
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
        "interrupted": [
            row for each in interruptions for row in gone_on(each, attempts[each.cell])
        ],
    }


def gone_on(cut: Interruption, attempts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what was saved when a cell was cut off, and from which checkpoint it went on.

    Nothing if the attempt was the last one: it was over before it was killed, or its process
    outlived its worker and was done in time.
    """
    return [
        {
            "cell": cut.cell,
            "saved": cut.checkpoint,
            "place": cut.place,
            "went on from": later["checkpoint"],
        }
        for later in attempts[cut.attempt + 1 : cut.attempt + 2]
    ]
