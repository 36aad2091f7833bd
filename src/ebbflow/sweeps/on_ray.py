"""Computes a sweep on a Ray cluster: each cell is a task that is tried again when a node is lost.

A task does what a worker's child does: it claims its cell, goes on from the last checkpoint, and
notes how it ended. So workers of other kinds may compute cells of the same folder meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from types import FrameType
from typing import Any

from ebbflow.cluster.connection import connected, known_address
from ebbflow.core.errors import EbbflowError
from ebbflow.core.signals import handled_by
from ebbflow.sweeps import on_node
from ebbflow.sweeps.computing import CellEnding, compute_cell
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.failures import LEFT, Failures, sentence_of
from ebbflow.sweeps.jobs import JobsReference
from ebbflow.sweeps.plan import SweepCell
from ebbflow.sweeps.room import Room
from ebbflow.sweeps.servants import import_paths
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
NODE_LABEL = "ray.io/node-id"
"""What Ray calls the number of a node where tasks say which nodes they want."""
EVERY_CELL = ""
"""Stands for the name of a cell where a node leaves all of them to others."""
MOST_REASONS = 3
"""How many nodes' reasons are told of one cell."""
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
        tasks = Tasks(ray, ready, patience, display.say)
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
    """The tasks of a sweep's cells, from their submission to their end.

    Args:
        ray: Ray, connected to the cluster.
        ready: The sweep.
        patience: Seconds to wait for another node while all cells that are left need one.
        say: Told in sentences which nodes leave cells to others.
    """

    def __init__(
        self, ray: Any, ready: PreparedSweep, patience: float, say: Callable[[str], None]
    ) -> None:
        self._ray, self._ready, self._patience, self._say = ray, ready, patience, say
        self._reference = ready.folder.reference(ready.plugins)
        ray.cloudpickle.register_pickle_by_value(on_node)
        # A process computes one cell, so that its memory and its crashes are its own.
        remote = ray.remote(max_calls=1, max_retries=-1, retry_exceptions=False)
        self._task = remote(on_node.compute_on_node)
        self._names: dict[Any, str] = {}
        self._left = Failures(ready.folder.path, LEFT)
        self._refusals: dict[tuple[str, str], str] = {}
        self._homeless: set[str] = set()
        self._hopeful = time.monotonic()

    @property
    def left(self) -> bool:
        """Whether there are tasks that have not ended."""
        return bool(self._names)

    def submit(self, name: str) -> None:
        """Let the cluster compute a cell, on a node that has what it needs and has not left it."""
        self._left.forget(name)
        self._homeless.discard(name)
        needed = self._needed(name)
        cores = needed["num_cpus"]
        factory, arguments = self._reference
        order = (factory, {**arguments, "cores": cores}), name, cores, import_paths()
        if refused := self._refused(name):
            needed["label_selector"] = {NODE_LABEL: f"!in({','.join(refused)})"}
        self._names[self._task.options(name=name, **needed).remote(*order)] = name

    def _needed(self, name: str) -> dict[str, Any]:
        return resources(self._ready.plan.by_name[name], self._ready.estimates.get(name))

    def _refused(self, name: str) -> dict[str, str]:
        """Return the nodes that leave a cell to others, with their reasons."""
        return {
            node: why for (node, cell), why in self._refusals.items() if cell in (name, EVERY_CELL)
        }

    def look_for_nodes(self, status: SweepStatus) -> None:
        """Note which cells no node can take; give them up if nothing else is left for long.

        Until then they wait at Ray's, so that a cluster which grows by itself knows of them.
        """
        nodes = {node["NodeID"]: node["Resources"] for node in self._ray.nodes() if node["Alive"]}
        states = {cell.name: cell.state for cell in status.cells}
        homeless = {}
        for task, name in list(self._names.items()):
            needed, refused = self._needed(name), self._refused(name)
            others = [node for number, node in nodes.items() if number not in refused]
            if any(has(node, needed) for node in others):
                continue
            if states[name] == "waiting":
                homeless[task] = name
                if name not in self._homeless:
                    reasons = list(refused.values())
                    self._left.write(name, EbbflowError(why_left(name, needed, others, reasons)))
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
                node, host, ending, why = self._ray.get(task)
            except Exception as error:  # Ray's own, or of notes and locks: the others go on
                cause = getattr(error, "cause", None) or error
                Failures(self._ready.folder.path).write(name, cause)
                continue
            if why:
                self._note_refusal(node, host, EVERY_CELL if ending is None else name, why)
            if ending not in (CellEnding.DONE, CellEnding.FAILED):
                self.submit(name)

    def _note_refusal(self, node: str, host: str, cell: str, why: str) -> None:
        """Keep cells from a node that leaves this one, or every cell, to others."""
        if (node, cell) not in self._refusals:
            self._refusals[node, cell] = f"{host}: {why}"
            self._say(f"{cell or 'every cell'} is left to other nodes by {host}: {why}")

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


def why_left(
    name: str,
    needed: Mapping[str, Any],
    nodes: Sequence[Mapping[str, float]],
    refusals: Sequence[str] = (),
) -> str:
    """Return why no node can take a cell: what these have at most, and what others have said."""
    most = {
        kind: max((node.get(_AS_NODES_SAY[kind], 0) for node in nodes), default=0)
        for kind in needed
    }
    reasons = list(refusals[:MOST_REASONS])
    if nodes or not reasons:
        reasons.insert(0, f"the most are {_in_words(most)}")
    return (
        f"{name} needs {_in_words(needed)}, and no node of the Ray cluster "
        f"{'can take it' if refusals else 'has that'} ({'; '.join(reasons)}): it is left for other "
        "machines"
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
    reference: tuple[str, Mapping[str, Any]], name: str, cores: int
) -> tuple[int | None, str]:
    """Compute a cell on this node; return how that ended, and why it is left to others if it is.

    If nothing can be computed here at all, there is no ending.
    """
    try:
        jobs = JobsReference(*reference).open()
        if name not in jobs.names():
            raise EbbflowError(f"{jobs.folder} holds another sweep here, without the cell {name}")
        for module in jobs.modules:  # before the cell is claimed: it may take a while
            import_module(module)
        room = Room(jobs.folder)
        room.check()
    except Exception as error:  # whatever it is, other nodes may do better
        return None, sentence_of(error)
    while True:
        ending = compute_cell(jobs, name, lambda: False, CLAIM_PATIENCE, cores)
        lacking = room.lacking(jobs.need(name)) if ending is CellEnding.NO_ROOM else ""
        if lacking is not None:
            return int(ending), lacking
        time.sleep(ROOM_INTERVAL)


class _Signals:
    """Remembers the first signal that asks this process to end."""

    number: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
