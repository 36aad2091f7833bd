"""Sweeps in a few lines, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebbflow import experiment
from ebbflow.sweeps.cores import shares_of_cores
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.grids import axes_of
from ebbflow.sweeps.plan import SweepPlan
from ebbflow.sweeps.planning import Wish, plan_of, wish_of_file

TINY: dict[str, Any] = {
    "methods": ["warm_start", "previous"],
    "sessions": 4,
    "rounds": 3,
    "partition.devices": 4,
    "data.limit_train": 300,
}


def wish(grid: Mapping[str, Any], **base: Any) -> Wish:
    """Return what somebody wants who writes a grid on top of a tiny run."""
    found = Wish()
    for key, value in {**TINY, **base}.items():
        found.layers.add_key(key.replace("__", "."), value, "test")
    found.vary(axes_of(grid, "grid"))
    return found


def planned(grid: Mapping[str, Any], **base: Any) -> SweepPlan:
    return plan_of(wish(grid, **base))


def written(folder: Path, text: str) -> SweepPlan:
    """Return the plan of a file with this text."""
    path = folder / "sweep.toml"
    path.write_text(text)
    return plan_of(wish_of_file(path))


def kept(folder: Path, plan: SweepPlan) -> SweepFolder:
    """Write a plan to a folder without measuring what it takes."""
    sweep = SweepFolder(folder)
    told = CellEstimate(1.0, 10**6, 10**5, len(shares_of_cores(1)[0]))
    sweep.write(plan, {cell.name: told for cell in plan.cells})
    return sweep


def finished_sweep(folder: Path) -> SweepFolder:
    """Return a sweep of one cell that is done."""
    plan = planned({"seeds": [1]})
    sweep = kept(folder, plan)
    experiment.run(plan.cells[0].config, sweep.run_folder("s1"))
    return sweep
