"""Sweeps on Ray: which nodes can take a cell; and clusters on 127.0.0.1."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from ebbflow.core.errors import EbbflowError
from ebbflow.simulation import ceilings
from ebbflow.sweeps import on_node
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.computing import CellEnding
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.folder import SweepFolder, jobs_of
from ebbflow.sweeps.jobs import Jobs, JobsReference
from ebbflow.sweeps.on_ray import (
    OWN_MEMORY,
    Tasks,
    compute_task,
    has,
    resources,
    run_on_ray,
    why_left,
)
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
        self.cloudpickle = mock.Mock()
        self.wished: list[dict[str, Any]] = []
        """With which options tasks were submitted."""
        self.answers: dict[int, Any] = {}
        """What comes of tasks, by their numbers from 1 on."""
        self._count = 0

    def nodes(self) -> list[dict[str, Any]]:
        gone = {"NodeID": "gone", "Alive": False, "Resources": LARGE}
        living = enumerate(self.living, start=1)
        alive = [{"NodeID": f"n{n}", "Alive": True, "Resources": node} for n, node in living]
        return [gone, *alive]

    def remote(self, *order: Any, **options: Any) -> Any:
        """Make functions tasks, or submit one."""
        if options:
            return self
        self._count += 1
        return self._count

    def __call__(self, function: Any) -> Any:
        return self

    def options(self, **needed: Any) -> Any:
        self.wished.append(needed)
        return self

    def wait(self, tasks: list[int], *, num_returns: int, timeout: float) -> Any:
        return [task for task in tasks if task in self.answers][:num_returns], []

    def get(self, task: int) -> Any:
        return self.answers.pop(task)

    def cancel(self, task: int, *, force: bool) -> None:
        self.cancelled.append(task)


def submitted(
    sweep: SweepFolder, ray: StandIn, patience: float, say: Callable[[str], None] = print
) -> Tasks:
    ready = PreparedSweep(sweep, sweep.plan(), sweep.estimates(), 1)
    tasks = Tasks(ray, ready, patience, say)
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


# --- nodes that leave cells to others ------------------------------------------------------------


def collected(tasks: Tasks, ray: StandIn, *answers: tuple[int, Any]) -> None:
    for task, answer in answers:
        ray.answers[task] = answer
        tasks.collect()


def test_a_node_that_cannot_compute_is_given_no_more_cells(tmp_path: Path) -> None:
    """And the cells that it was given go to others."""
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1, 2]}))
    ray, said = StandIn(SMALL, SMALL), list[str]()
    tasks = submitted(sweep, ray, 0.0, said.append)
    blind = ("n1", "b", None, "/shared/x holds no sweep")
    collected(tasks, ray, (1, blind), (2, blind))
    assert ["label_selector" in wish for wish in ray.wished] == [False, False, True, True]
    assert ray.wished[-1]["label_selector"] == {"ray.io/node-id": "!in(n1)"}
    assert said == ["every cell is left to other nodes by b: /shared/x holds no sweep"]
    reader = StatusReader(sweep)
    tasks.look_for_nodes(reader.read())
    assert tasks.left and not ray.cancelled
    assert not any(name in Failures(sweep.path) for name in ("s1", "s2"))


def test_cells_that_no_node_can_compute_are_left_with_the_reasons(tmp_path: Path) -> None:
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1]}))
    ray, reader = StandIn(SMALL, SMALL), StatusReader(sweep)
    tasks = submitted(sweep, ray, 0.0, lambda sentence: None)
    collected(tasks, ray, (1, ("n1", "b", None, "it is blind")))
    collected(tasks, ray, (2, ("n2", "c", int(CellEnding.NO_ROOM), "other programs leave 1.0 MB")))
    assert ray.wished[-1]["label_selector"] == {"ray.io/node-id": "!in(n1,n2)"}
    tasks.look_for_nodes(reader.read())
    assert not tasks.left and ray.cancelled == [3]
    (cell,) = reader.read().cells
    assert cell.state == "waiting"
    assert cell.why.endswith(
        "s1 needs 1 core and 210.7 MB of memory, and no node of the Ray cluster can take it (b: it "
        "is blind; c: other programs leave 1.0 MB): it is left for other machines"
    )


def test_a_node_without_room_for_a_cell_may_have_some_for_others(tmp_path: Path) -> None:
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1, 2]}))
    ray = StandIn(SMALL, SMALL)
    tasks = submitted(sweep, ray, 0.0)
    short = ("n1", "b", int(CellEnding.NO_ROOM), "this machine has 1.0 MB")
    collected(tasks, ray, (1, short), (2, ("n1", "b", int(CellEnding.TAKEN), "")))
    assert ["label_selector" in wish for wish in ray.wished] == [False, False, True, False]
    collected(tasks, ray, (3, ("n2", "c", 0, "")), (4, ("n1", "b", int(CellEnding.FAILED), "")))
    assert not tasks.left


def toys(folder: Path, need: int = 0) -> tuple[str, dict[str, Any]]:
    arguments = {"folder": str(folder), "does": {"a": "do"}, "needs": {"a": need} if need else {}}
    return "tests.sweeps.toys:toy_jobs", arguments


def test_what_a_node_cannot_begin_fails_no_cell(tmp_path: Path) -> None:
    nowhere = SweepFolder(tmp_path / "nowhere").reference()
    ending, why = compute_task(nowhere, "a", 1)
    assert ending is None
    assert why.startswith(f"{tmp_path}/nowhere holds no sweep (sweep.toml is missing)")
    assert not (tmp_path / "nowhere").exists()
    assert compute_task(("tests.sweeps.toys:nothing", {}), "a", 1)[0] is None
    assert compute_task(toys(tmp_path), "b", 1) == (
        None,
        f"{tmp_path} holds another sweep here, without the cell b",
    )
    (tmp_path / "hosts").touch()
    ending, why = compute_task(toys(tmp_path), "a", 1)
    assert ending is None and "cannot be locked" in why
    (tmp_path / "hosts").unlink()
    assert compute_task(toys(tmp_path), "a", 1) == (0, "")
    assert "a" not in Failures(tmp_path)


def test_a_task_does_not_wait_for_memory_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebbflow.sweeps.on_ray.ROOM_INTERVAL", 0.01)
    monkeypatch.setattr("ebbflow.sweeps.room.PATIENCE", 0.05)
    monkeypatch.setattr(ceilings, "available_memory", lambda: 1000)
    monkeypatch.setattr(ceilings, "total_memory", lambda: 10**12)
    short = int(CellEnding.NO_ROOM)
    assert compute_task(toys(tmp_path, 10**12), "a", 1) == (short, "other programs leave 1.0 kB")
    assert compute_task(toys(tmp_path, 10**13), "a", 1) == (short, "this machine has 1.0 TB")
    assert Claims(tmp_path).attempts("a") == []
    monkeypatch.setattr(ceilings, "available_memory", lambda: 10**12)
    assert compute_task(toys(tmp_path, 10**9), "a", 1) == (0, "")


def test_a_task_finds_the_folder_from_wherever_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept(Path("sweep"), planned({"seeds": [1]}))
    found = SweepFolder(Path("sweep")).reference()
    monkeypatch.chdir("/")
    assert found.open().names() == ["s1"]


WITHOUT_EBBFLOW = """
import pickle, sys
from unittest import mock
import ray
ray.get_runtime_context = mock.Mock()
sys.modules["ebbflow"] = None
task = pickle.loads(sys.stdin.buffer.read())
_, _, ending, why = task(("", {}), "a", 1, [])
assert ending is None
print(why)
"""


def test_a_node_without_ebbflow_says_so() -> None:
    pickling = pytest.importorskip("ray.cloudpickle")
    pickling.register_pickle_by_value(on_node)
    try:
        sent = pickling.dumps(on_node.compute_on_node)
    finally:
        pickling.unregister_pickle_by_value(on_node)
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_EBBFLOW], input=sent, capture_output=True, check=True
    )
    assert answer.stdout.decode().startswith("ebbflow cannot be imported: ")


# --- slow ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cluster_on_127_0_0_1_is_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes have another working directory than the one that asks them to compute."""
    pytest.importorskip("ray")
    from benchmarks.cluster import machines  # noqa: PLC0415 - where Ray is

    with machines.nodes(1) as one:
        monkeypatch.chdir(tmp_path)
        kept(Path("sweep"), planned({"seeds": [1, 2]}))
        answer = process("sweep", "--out", "sweep", "--ray", one.address, "--json")
        everything = one.processes()
    assert machines.left_over(everything) == []
    assert answer.returncode == 0, answer
    assert json.loads(answer.stdout)["counts"]["done"] == 2


@pytest.mark.slow
def test_workers_started_by_hand_take_turns_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from benchmarks.cluster import machines  # noqa: PLC0415 - where Ray is

    sweep = kept(tmp_path / "sweep", planned({"seeds": [1, 2, 3]}, engine__kind="ray"))
    with machines.nodes(1) as one, ThreadPoolExecutor(2) as side_by_side:
        monkeypatch.setenv("RAY_ADDRESS", one.address)
        work = partial(process, "sweep", "work", str(sweep.path))
        answers = [future.result() for future in [side_by_side.submit(work) for _ in range(2)]]
        everything = one.processes()
    assert machines.left_over(everything) == []
    assert [answer.returncode for answer in answers] == [0, 0], answers
    said = "".join(answer.stderr for answer in answers)
    assert "waits for a Ray cluster that another cell of the sweep has taken" in said
    found = StatusReader(sweep).read()
    assert [(cell.state, cell.starts) for cell in found.cells] == [("done", 1)] * 3


class HalfSeen(SweepFolder):
    """A sweep that one node of a cluster cannot read: the first one that tries to."""

    def reference(self, plugins: Sequence[str] = ()) -> JobsReference:
        arguments = {**super().reference(plugins).arguments, "blind": f"{self.path}-blind"}
        return JobsReference("tests.sweeps.test_on_ray:seen_elsewhere", arguments)


def seen_elsewhere(blind: str, **arguments: Any) -> Jobs:
    import ray  # noqa: PLC0415 - it may not be there

    node = ray.get_runtime_context().get_node_id()
    with suppress(FileExistsError), Path(blind).open("x") as file:
        file.write(node)
    if Path(blind).read_text() == node:
        raise EbbflowError("it cannot be seen from here")
    return jobs_of(**arguments)


@pytest.mark.slow
def test_a_node_that_does_not_see_the_folder_spoils_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from benchmarks.cluster import machines  # noqa: PLC0415 - where Ray is

    sweep = HalfSeen(kept(tmp_path / "sweep", planned({"seeds": [1, 2, 3, 4]})).path)
    ready = PreparedSweep(sweep, sweep.plan(), sweep.estimates(), 1)
    said = io.StringIO()
    with machines.nodes(2) as two:
        assert run_on_ray(ready, two.address, SweepDisplay(Console(file=said))) is None
        everything = two.processes()
    assert machines.left_over(everything) == []
    assert StatusReader(sweep).read().counts["done"] == 4
    assert said.getvalue().count("every cell is left to other nodes by") == 1
    assert "it cannot be seen from here" in said.getvalue()


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
