"""Compares what `ebbflow sweep --dry-run` tells of cells with what they then take."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.trials import Say
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


TRIES, DISTURBED = 2, 0.1
"""Both times are of the clock. If other programs took more than this share of the processors, a
cell is tried again, and the least disturbed of the trials counts."""


def estimates(say: Say) -> list[dict[str, Any]]:
    """Measure a cell, compute it at once, and compare: twelve times, with different cells."""
    with tempfile.TemporaryDirectory(prefix="ebbflow-estimates-") as parent:
        file = Path(parent) / "sweep.toml"
        file.write_text(SWEEP)
        plan = plan_of(wish_of_file(file))
        rows = []
        for cell in plan.cells:
            trials: list[dict[str, Any]] = []
            while len(trials) < TRIES and not (trials and trials[-1]["others"] <= DISTURBED):
                folder = SweepFolder(Path(parent) / f"{cell.name}-{len(trials)}")
                trials.append(compared(SweepPlan(plan.name, plan.varied, (cell,)), folder))
                say(str(trials[-1]))
            rows.append(min(trials, key=lambda row: float(row["others"])))
    return rows


def _busy_and_all() -> tuple[float, float]:
    """Return the seconds that all processors have been busy, and those that they have had."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    counts = [int(number) / os.sysconf("SC_CLK_TCK") for number in first]
    return sum(counts) - counts[3] - counts[4], sum(counts)


def _own() -> float:
    """Return the processor seconds of this process and of all that it has waited for."""
    return sum(os.times()[:4])


def compared(plan: SweepPlan, folder: SweepFolder) -> dict[str, Any]:
    """Return what was told of the one cell of a plan, and what it took."""
    (cell,) = plan.cells
    (busy, whole), own = _busy_and_all(), _own()
    ready = prepared(plan, folder, 1)
    write(ready)
    Crew(folder.reference(), 1, folder.path / LOGS).work(lambda: None)
    told, (took,) = ready.estimates[cell.name], Claims(folder.path).attempts(cell.name)
    if took["state"] != "done":
        raise RuntimeError(f"{cell.name} is not done")
    (busy, whole), own = (_busy_and_all()[0] - busy, _busy_and_all()[1] - whole), _own() - own
    return {
        "cell": cell.name,
        "machine": machine()["processor"],
        "others": round((busy - own) / whole, 3),
        "seconds told": round(told.seconds or 0, 1),
        "seconds": round(took["seconds"], 1),
        "cpu seconds": took["cpu_seconds"],
        "memory told": round(told.memory / 1e6),
        "memory": round(took["memory"] / 1e6),
    }
