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

from ebbflow.cluster.connection import connected
from ebbflow.core.signals import handled_by
from ebbflow.sweeps.computing import CellEnding, compute_cell
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.failures import Failures
from ebbflow.sweeps.jobs import JobsReference
from ebbflow.sweeps.plan import SweepCell
from ebbflow.sweeps.starting import PreparedSweep
from ebbflow.sweeps.status import StatusReader

INTERVAL = 0.5
"""Seconds between two looks at the tasks."""
CLAIM_PATIENCE = 120.0
"""Seconds to wait for a process whose node is gone, but which is not: it holds the cell's lock."""
ROOM_INTERVAL = 5.0
"""Seconds between two looks whether there is memory for a cell."""
OWN_MEMORY = 200 * 2**20
"""Bytes that Ray's own libraries take in a process that computes a cell."""
OPTION = "--ray"
"""Where the user names the address of a cluster."""


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
    # Ray says on standard output which nodes it has lost; that one is for results.
    with (
        redirect_stdout(sys.stderr),
        connected(address, OPTION) as ray,
        handled_by(signals.note),
        display,
    ):
        tasks = _Tasks(ray, ready)
        for name in waiting:
            tasks.submit(name)
        while tasks.left and signals.number is None:
            tasks.collect()
            display.update(reader.read())
        if signals.number is not None:
            tasks.cancel()
        display.update(reader.read())
    return signals.number


class _Tasks:
    """The tasks of a sweep's cells, from their submission to their end."""

    def __init__(self, ray: Any, ready: PreparedSweep) -> None:
        self._ray, self._ready = ray, ready
        self._reference = ready.folder.reference(ready.plugins)
        # A process computes one cell, so that its memory and its crashes are its own.
        remote = ray.remote(max_calls=1, max_retries=-1, retry_exceptions=False)
        self._task = remote(compute_task)
        self._names: dict[Any, str] = {}

    @property
    def left(self) -> bool:
        """Whether there are tasks that have not ended."""
        return bool(self._names)

    def submit(self, name: str) -> None:
        """Let the cluster compute a cell, on a node that has what it needs."""
        cell = self._ready.plan.by_name[name]
        needed = resources(cell, self._memory(name))
        task = self._task.options(name=name, **needed)
        order = tuple(self._reference), name, int(needed["num_cpus"]), sys.path
        self._names[task.remote(*order)] = name

    def _memory(self, name: str) -> int | None:
        estimate = self._ready.estimates.get(name)
        return None if estimate is None else estimate.memory

    def collect(self) -> None:
        """Wait a moment for tasks to end; those whose cell another process had go on waiting."""
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
        for task in self._names:
            self._ray.cancel(task, force=True)


def resources(cell: SweepCell, memory: int | None) -> dict[str, Any]:
    """Return what Ray has to set aside for a cell: cores, memory, and a GPU where it wants one."""
    engine = cell.settings.get("engine", {})
    needed: dict[str, Any] = {"num_cpus": int(engine.get("workers") or 1)}
    if memory is not None:
        needed["memory"] = memory + OWN_MEMORY
    if str(cell.settings.get("device", "cpu")).startswith("cuda"):
        needed["num_gpus"] = 1
    return needed


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
