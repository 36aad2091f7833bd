"""Computes a sweep on a Ray cluster: each cell is a task that is tried again when a node is lost.

A task does what a worker's child does: it claims its cell, goes on from the last checkpoint, and
notes how it ended. So workers of other kinds may compute cells of the same folder meanwhile.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from ebbflow.core.errors import EbbflowError
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
LOCAL = "local"


def run_on_ray(ready: PreparedSweep, address: str, display: SweepDisplay) -> int | None:
    """Compute the cells of a sweep as tasks; return the signal that stopped them, if one did.

    Args:
        ready: The sweep, whose folder all nodes see under the same path.
        address: That of a cluster, "auto", "local" for one of this machine, or an empty text for
            whatever cluster there is, or else one of this machine.
        display: Shows how it goes on.
    """
    reader = StatusReader(ready.folder)
    status = reader.read()
    display.skip(status)
    if status.over:
        return None
    waiting = [cell.name for cell in status.cells if cell.state in ("running", "waiting")]
    ray = _imported()
    signals = _Signals()
    # Ray says on standard output which nodes it has lost; that one is for results.
    with (
        redirect_stdout(sys.stderr),
        _connected(ray, address),
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


def _imported() -> Any:
    """Return the module ray, which reports nothing to anybody."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # What a later version will do anyway; until it is said, Ray warns.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for a machine that is busy
    try:
        import ray  # noqa: PLC0415 - large, and not always there
    except ImportError:
        raise EbbflowError(
            'Ray is missing here, and --ray needs it: `pip install "ebbflow[ray]"`'
        ) from None
    return ray


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to a cluster, and leave it again; one that was started for us ends with that."""
    if ray.is_initialized():  # a program's own, which is used as it is
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    try:
        if address == LOCAL or (not address and not _cluster_there(ray)):
            ray.init(address=LOCAL, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        else:
            ray.init(address=address or "auto", **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EbbflowError(
            f"--ray {address}: there is no cluster to connect to ({_first_line(error)}): start one "
            "by `ray start --head`, or use --ray local"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _cluster_there(ray: Any) -> bool:
    """Whether a cluster is named in the environment, or was started on this machine."""
    from ray._private import services  # noqa: PLC0415 - what ray.init itself asks

    return bool(os.environ.get("RAY_ADDRESS")) or bool(
        services.find_gcs_addresses()  # type: ignore[no-untyped-call]
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__


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
