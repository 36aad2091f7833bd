"""Compares what `ebbflow sweep --dry-run` tells of cells with what they then take."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.sweeps.cells import Say
from ebbflow.runs.environment import machine
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.crew import Crew
from ebbflow.sweeps.folder import LOGS, SweepFolder
from ebbflow.sweeps.plan import SweepPlan
from ebbflow.sweeps.planning import plan_of, wish_of_file
from ebbflow.sweeps.starting import prepared, write

SWEEP = """\
name = "estimates"

[base]
seeds = [1]
sessions = 6

[[cells]]
name = "digits-learned"
methods = ["learned"]
rounds = 400

[[cells]]
name = "digits-scaffold"
algorithm = "scaffold"
rounds = 60
partition.devices = 10

[[cells]]
name = "digits-mlp"
model.kind = "mlp"
methods = ["learned", "previous"]
rounds = 50

[[cells]]
name = "digits-mlp-moon"
model.kind = "mlp"
algorithm = "moon"
methods = ["warm_start"]
rounds = 30

[[cells]]
name = "digits-seeds"
seeds = [1, 2, 3]
methods = ["warm_start", "previous"]
rounds = 60

[[cells]]
name = "mnist"
dataset = "mnist"
rounds = 30

[[cells]]
name = "mnist-mlp-scaffold"
dataset = "mnist"
model.kind = "mlp"
algorithm = "scaffold"
methods = ["previous", "average"]
data.limit_train = 10000
partition.devices = 10
rounds = 10

[[cells]]
name = "svhn-cnn"
dataset = "svhn"
model.kind = "cnn"
methods = ["learned"]
data.limit_train = 500
data.limit_test = 200
partition.devices = 3
sessions = 4
rounds = 3

[[cells]]
name = "fmnist-moon"
dataset = "fmnist"
algorithm = "moon"
methods = ["learned", "warm_start", "previous"]
data.limit_train = 20000
partition.devices = 10
rounds = 20

[[cells]]
name = "fmnist-mlp"
dataset = "fmnist"
model.kind = "mlp"
methods = ["learned"]
data.limit_train = 20000
partition.devices = 10
rounds = 20

[[cells]]
name = "agnews"
dataset = "agnews"
methods = ["learned", "previous"]
data.limit_train = 6000
data.limit_test = 1000
partition.devices = 10
sessions = 4
rounds = 10

[[cells]]
name = "mnist-random"
dataset = "mnist"
methods = ["learned", "average"]
partition.kind = "pool"
partition.devices = 40
participation.share = 10
schedule.kind = "random"
rounds = 40
"""


def estimates(say: Say) -> list[dict[str, Any]]:
    """Measure a cell, compute it at once, and compare: twelve times, with different cells."""
    with tempfile.TemporaryDirectory(prefix="ebbflow-estimates-") as parent:
        file = Path(parent) / "sweep.toml"
        file.write_text(SWEEP)
        plan = plan_of(wish_of_file(file))
        rows = []
        for cell in plan.cells:
            wait_for_rest(say)
            folder = SweepFolder(Path(parent) / cell.name)
            rows.append(compared(SweepPlan(plan.name, plan.varied, (cell,)), folder))
            say(
                f"{cell.name}: time x{rows[-1]['seconds told'] / rows[-1]['seconds']:.2f}, memory "
                f"x{rows[-1]['memory told'] / rows[-1]['memory']:.2f}"
            )
    return rows


def wait_for_rest(say: Say, longest: float = 90.0) -> None:
    """Wait until other programs leave the machine alone: both times are of the clock."""
    until, told = time.monotonic() + longest, False
    while time.monotonic() < until:
        before = _busy_and_all()
        time.sleep(2)
        busy, whole = (now - then for now, then in zip(_busy_and_all(), before, strict=True))
        if busy < 0.1 * whole:
            return
        if not told:
            say("waiting until the machine is at rest")
        told = True
    say("the machine does not come to rest: measured all the same")


def _busy_and_all() -> tuple[int, int]:
    """Return what the system has counted of its processors' time."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    counts = [int(number) for number in first]
    return sum(counts) - counts[3] - counts[4], sum(counts)


def compared(plan: SweepPlan, folder: SweepFolder) -> dict[str, Any]:
    """Return what was told of the one cell of a plan, and what it took."""
    (cell,) = plan.cells
    ready = prepared(plan, folder, 1)
    write(ready)
    Crew(folder.reference(), 1, folder.path / LOGS).work(lambda: None)
    told, (took,) = ready.estimates[cell.name], Claims(folder.path).attempts(cell.name)
    if took["state"] != "done":
        raise RuntimeError(f"{cell.name} is not done")
    return {
        "cell": cell.name,
        "machine": machine()["processor"],
        "load": os.getloadavg()[0],
        "seconds told": round(told.seconds or 0, 1),
        "seconds": round(took["seconds"], 1),
        "cpu seconds": took["cpu_seconds"],
        "memory told": round(told.memory / 1e6),
        "memory": round(took["memory"] / 1e6),
    }
