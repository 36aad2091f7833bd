"""Sweeps on Ray: which nodes can take a cell; and clusters on 127.0.0.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.on_ray import OWN_MEMORY, Tasks, has, resources, why_left
from ebbflow.sweeps.starting import PreparedSweep
from ebbflow.sweeps.status import StatusReader
from tests.sweeps.wishes import kept, planned, written
from tests.test_cli import process

SMALL = {"CPU": 2.0, "memory": 4e9}
LARGE = {"CPU": 8.0, "memory": 9e9, "GPU": 1.0}


class StandIn:
    """What a sweep asks of Ray, and tasks that never end."""

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.living = list(nodes)
        self.cancelled: list[int] = []
        self._count = 0

    def nodes(self) -> list[dict[str, Any]]:
        gone = {"Alive": False, "Resources": LARGE}
        return [gone, *({"Alive": True, "Resources": node} for node in self.living)]

    def remote(self, *order: Any, **options: Any) -> Any:
        """Make functions tasks, or submit one."""
        self._count += 1
        return self if options else self._count

    def __call__(self, function: Any) -> Any:
        return self

    def options(self, **needed: Any) -> Any:
        return self

    def cancel(self, task: int, *, force: bool) -> None:
        self.cancelled.append(task)


def submitted(sweep: SweepFolder, ray: StandIn, patience: float) -> Tasks:
    ready = PreparedSweep(sweep, sweep.plan(), sweep.estimates(), 1)
    tasks = Tasks(ray, ready, patience)
    for cell in ready.plan.cells:
        tasks.submit(cell.name)
    return tasks


def test_a_cell_fits_a_node_that_has_all_of_it() -> None:
    assert has(SMALL, {"num_cpus": 2, "memory": 4 * 10**9})
    assert not has(SMALL, {"num_cpus": 3})
    assert not has(SMALL, {"num_cpus": 1, "memory": 5 * 10**9})
    assert not has(SMALL, {"num_cpus": 1, "num_gpus": 1})
    assert has(LARGE, {"num_cpus": 1, "num_gpus": 1})
    needed = {"num_cpus": 1, "memory": 5 * 10**9, "num_gpus": 1}
    assert why_left("a", needed, [SMALL]) == (
        "a needs 1 core, 5.0 GB of memory and 1 GPU, and no node of the Ray cluster has that (the "
        "most are 2 cores, 4.0 GB of memory and 0 GPUs): it is left for other machines"
    )


def test_memory_is_set_aside_for_the_cores_of_a_cell() -> None:
    """The driver's cores are not those that a task gets."""
    (plain,) = planned({"seeds": [1]}).cells
    (bound,) = planned({"seeds": [1]}, engine__workers=4).cells
    told = CellEstimate(1.0, 2000, 10, cores=64, each_core=30)
    assert resources(plain, told) == {"num_cpus": 1, "memory": OWN_MEMORY + 2000 - 63 * 30}
    assert resources(bound, told._replace(each_core=0))["memory"] == OWN_MEMORY + 2000
    assert resources(plain, None) == {"num_cpus": 1}


def test_a_cell_that_no_node_can_take_is_left_and_named(tmp_path: Path) -> None:
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1]}, engine__workers=8))
    ray, reader = StandIn(SMALL), StatusReader(sweep)
    tasks = submitted(sweep, ray, patience=0.0)
    tasks.look_for_nodes(reader.read())
    assert not tasks.left and len(ray.cancelled) == 1
    (cell,) = reader.read().cells
    assert cell.state == "waiting"
    assert "s1 needs 8 cores and" in cell.why and "the most are 2 cores" in cell.why


def test_it_waits_for_a_node_while_others_are_computed(tmp_path: Path) -> None:
    text = '[[cells]]\nname = "a"\n[[cells]]\nname = "b"\nseeds = [2]\nengine.workers = 8\n'
    sweep = kept(tmp_path / "sweep", written(tmp_path, text))
    ray, reader = StandIn(SMALL), StatusReader(sweep)
    tasks = submitted(sweep, ray, patience=0.0)
    tasks.look_for_nodes(reader.read())
    assert not ray.cancelled
    left = Failures(sweep.path, LEFT)
    assert "a" not in left and "b" in left
    ray.living.append(LARGE)
    tasks.look_for_nodes(reader.read())
    assert not ray.cancelled
    ray.living.clear()
    tasks.look_for_nodes(reader.read())
    assert not tasks.left
    assert "a" in left


# --- slow ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cluster_on_127_0_0_1_is_joined(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from benchmarks.cluster import machines  # noqa: PLC0415 - where Ray is

    sweep = kept(tmp_path / "sweep", planned({"seeds": [1, 2]}))
    with machines.nodes(1) as one:
        answer = process("sweep", "--out", str(sweep.path), "--ray", one.address, "--json")
        everything = one.processes()
    assert machines.left_over(everything) == []
    assert answer.returncode == 0, answer
    assert json.loads(answer.stdout)["counts"]["done"] == 2


@pytest.mark.slow
def test_what_a_cluster_of_this_machine_cannot_take_ends_the_sweep(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    plan = written(tmp_path, CELLS)
    sweep = kept(tmp_path / "sweep", plan)
    answer = process("sweep", "--out", str(sweep.path), "--ray", "local")
    assert answer.returncode == 1, answer
    assert "small: done" in answer.stderr
    assert "large needs 999 cores and" in answer.stderr
    assert StatusReader(sweep).read().counts["done"] == 1


CELLS = """\
[base]
sessions = 3
rounds = 2
methods = ["previous"]

[[cells]]
name = "small"

[[cells]]
name = "large"
seeds = [2]
engine.workers = 999
"""
