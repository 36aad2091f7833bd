"""Computes a sweep on a Ray cluster: each cell is a task that is tried again when a node is lost.

A task does what a worker's child does: it claims its cell, goes on from the last checkpoint, and
notes how it ended. So workers of other kinds may compute cells of the same folder meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from ebbflow.cluster.connection import connected, known_address
from ebbflow.core.errors import EbbflowError
from ebbflow.core.signals import handled_by
from ebbflow.sweeps.computing import CellEnding, compute_cell
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.jobs import JobsReference
from ebbflow.sweeps.plan import SweepCell
from ebbflow.sweeps.starting import PreparedSweep
from ebbflow.sweeps.status import StatusReader, SweepStatus

INTERVAL = 0.5
"""Seconds between two looks at the tasks."""
CLAIM_PATIENCE = 120.0
"""Seconds to wait for a process whose node is gone, but which is not: it holds the cell's lock."""
ROOM_INTERVAL = 5.0
"""Seconds between two looks whether there is memory for a cell."""
NODE_PATIENCE = 120.0
"""Seconds to wait for a node that has what is needed while no other cell is computed."""
OWN_MEMORY = 200 * 2**20
"""Bytes that Ray's own libraries take in a process that computes a cell."""
OPTION = "--ray"
"""Where the user names the address of a cluster."""
_AS_NODES_SAY = {"num_cpus": "CPU", "memory": "memory", "num_gpus": "GPU"}


def run_on_ray(ready: PreparedSweep, address: str, display: SweepDisplay) -> int | None:
    """Compute the cells of a sweep as tasks; return the signal that stopped them, if one did.

    Args:
        ready: The sweep, whose folder all nodes see under the same path.
        address: That of a cluster, "auto", "local" for one of this machine, or an empty text for
            the one that there is, or else one of this machine.
        display: Shows how it goes on.
    """
    reader = StatusReader(ready.folder)
    status = reader.read()
    display.skip(status)
    if status.over:
        return None
    waiting = [cell.name for cell in status.cells if cell.state in ("running", "waiting")]
    signals = _Signals()
    # Nobody joins a cluster that is started for us.
    patience = NODE_PATIENCE if known_address(address) else 0.0
    # Ray says on standard output which nodes it has lost; that one is for results.
    with (
        redirect_stdout(sys.stderr),
        connected(address, OPTION) as ray,
        handled_by(signals.note),
        display,
    ):
        tasks = Tasks(ray, ready, patience)
        for name in waiting:
            tasks.submit(name)
        while tasks.left and signals.number is None:
            status = reader.read()
            tasks.look_for_nodes(status)
            display.update(status)
            tasks.collect()
        if signals.number is not None:
            tasks.cancel()
        display.update(reader.read())
    return signals.number


class Tasks:
    """The tasks of a sweep's cells, from their submission to their end."""

    def __init__(self, ray: Any, ready: PreparedSweep, patience: float) -> None:
        self._ray, self._ready, self._patience = ray, ready, patience
        self._reference = ready.folder.reference(ready.plugins)
        # A process computes one cell, so that its memory and its crashes are its own.
        remote = ray.remote(max_calls=1, max_retries=-1, retry_exceptions=False)
        self._task = remote(compute_task)
        self._names: dict[Any, str] = {}
        self._left = Failures(ready.folder.path, LEFT)
        self._homeless: set[str] = set()
        self._hopeful = time.monotonic()

    @property
    def left(self) -> bool:
        """Whether there are tasks that have not ended."""
        return bool(self._names)

    def submit(self, name: str) -> None:
        """Let the cluster compute a cell, on a node that has what it needs."""
        self._left.forget(name)
        needed = self._needed(name)
        cores = needed["num_cpus"]
        factory, arguments = self._reference
        order = (factory, {**arguments, "cores": cores}), name, cores, sys.path
        self._names[self._task.options(name=name, **needed).remote(*order)] = name

    def _needed(self, name: str) -> dict[str, Any]:
        return resources(self._ready.plan.by_name[name], self._ready.estimates.get(name))

    def look_for_nodes(self, status: SweepStatus) -> None:
        """Note which cells no node can take; give them up if nothing else is left for long.

        Until then they wait at Ray's, so that a cluster which grows by itself knows of them.
        """
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        states = {cell.name: cell.state for cell in status.cells}
        homeless = {}
        for task, name in list(self._names.items()):
            needed = self._needed(name)
            if any(has(node, needed) for node in nodes):
                continue
            if states[name] == "waiting":
                homeless[task] = name
                if name not in self._homeless:
                    self._left.write(name, EbbflowError(why_left(name, needed, nodes)))
            elif states[name] != "running":  # a worker of another kind has had it
                self._give_up(task)
        self._homeless = set(homeless.values())
        if len(homeless) < len(self._names):
            self._hopeful = time.monotonic()
        elif time.monotonic() - self._hopeful >= self._patience:
            for task in homeless:
                self._give_up(task)

    def _give_up(self, task: Any) -> None:
        del self._names[task]
        self._ray.cancel(task, force=True)

    def collect(self) -> None:
        """Wait a moment for tasks to end; those whose cell another process had go on waiting."""
        if not self._names:
            return
        done, _ = self._ray.wait(list(self._names), num_returns=1, timeout=INTERVAL)
        for task in done:
            name = self._names.pop(task)
            try:
                ending = CellEnding(self._ray.get(task))
            except Exception as error:  # Ray's own, or of notes and locks: the others go on
                cause = getattr(error, "cause", None) or error
                Failures(self._ready.folder.path).write(name, cause)
                continue
            if ending in (CellEnding.TAKEN, CellEnding.NO_ROOM, CellEnding.STOPPED):
                self.submit(name)

    def cancel(self) -> None:
        """End all tasks; cells that were begun can go on from their last checkpoints."""
        for task in list(self._names):
            self._give_up(task)


def resources(cell: SweepCell, estimate: CellEstimate | None) -> dict[str, Any]:
    """Return what Ray has to set aside for a cell: cores, memory, and a GPU where it wants one."""
    engine = cell.settings.get("engine", {})
    cores = int(engine.get("workers") or 1)
    needed: dict[str, Any] = {"num_cpus": cores}
    if estimate is not None:
        needed["memory"] = estimate.memory_on(cores) + OWN_MEMORY
    if str(cell.settings.get("device", "cpu")).startswith("cuda"):
        needed["num_gpus"] = 1
    return needed


def has(node: Mapping[str, float], needed: Mapping[str, Any]) -> bool:
    """Whether a node would have what a cell needs if it had nothing else to do."""
    return all(node.get(_AS_NODES_SAY[kind], 0) >= amount for kind, amount in needed.items())


def why_left(name: str, needed: Mapping[str, Any], nodes: Sequence[Mapping[str, float]]) -> str:
    """Return why no node can take a cell."""
    most = {
        kind: max((node.get(_AS_NODES_SAY[kind], 0) for node in nodes), default=0)
        for kind in needed
    }
    return (
        f"{name} needs {_in_words(needed)}, and no node of the Ray cluster has that (the most are "
        f"{_in_words(most)}): it is left for other machines"
    )


def _in_words(amounts: Mapping[str, Any]) -> str:
    from ebbflow.simulation.ceilings import in_words  # noqa: PLC0415 - imports torch

    parts = []
    for kind, amount in amounts.items():
        unit = {"num_cpus": "core", "num_gpus": "GPU"}.get(kind)
        if unit is None:
            parts.append(f"{in_words(int(amount))} of memory")
        else:
            parts.append(f"{amount:.0f} {unit}{'' if amount == 1 else 's'}")
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]


def compute_task(
    reference: tuple[str, Mapping[str, Any]], name: str, cores: int, paths: Sequence[str]
) -> int:
    """Compute a cell on a node of the cluster; runs in a process that Ray has started."""
    for path in paths:  # the same code as that of the process that has submitted it, if it is there
        if path not in sys.path and Path(path).exists():
            sys.path.append(path)
    jobs = JobsReference(*reference).open()
    for module in jobs.modules:  # before the cell is claimed: it may take a while
        import_module(module)
    while True:
        ending = compute_cell(jobs, name, lambda: False, CLAIM_PATIENCE, cores)
        if ending is not CellEnding.NO_ROOM:
            return int(ending)
        time.sleep(ROOM_INTERVAL)


class _Signals:
    """Remembers the first signal that asks this process to end."""

    number: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
