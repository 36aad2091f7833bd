"""The workers of a Ray cluster: one actor on each node, or for each GPU.

An actor claims all cores of its node. Nodes that join are found when tasks are handed out, and on a
node that lives on, a lost actor is replaced.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple

from ebbflow.cluster.agreement import PASSED_ON, disagreement
from ebbflow.cluster.chunks import Failed, Put
from ebbflow.cluster.dispatch import FetchError, WorkerLostError
from ebbflow.cluster.hosting import WorkerHost, last_line
from ebbflow.core.errors import EbbflowError, EbbflowWarning

START_SECONDS = 180.0
"""The longest that a run waits for its first worker."""
OTHERS_SECONDS = 20.0
"""How much longer it waits for the others before it begins without them."""
RESULT_SECONDS = 300.0
"""The longest that the driver waits for a result that a worker has announced."""
LOOK_SECONDS = 1.0
"""How often it is looked whether nodes have come or gone."""
ATTEMPTS = 3
"""How often an actor is started on a node before the node is given up."""
PLUGINS = "ebbflow_plugin_"
"""How the names of modules begin that were loaded from plugins (`ebbflow.plugins`)."""


class NodePlace(NamedTuple):
    """Where an actor may be: a node, and the number of its GPU."""

    node: str
    number: int


@dataclass
class _Actor:
    """An actor, the name of its node, and what will tell whether it agrees with the driver."""

    handle: Any
    name: str
    facts: Any
    threads: int
    ready: bool = False


class RayPool:
    """Actors on all nodes of the cluster.

    Args:
        ray: Ray, connected to the cluster.
        data: The data set, packed; it is sent once.
        ours: What must be the same everywhere for equal bits.
        on_gpu: Whether an actor gets a GPU.
        threads: Threads of an actor; by default the cores of its node.
        kernel: Whether the fused kernels are used where they were built.
    """

    def __init__(
        self,
        ray: ModuleType,
        data: Any,
        ours: Mapping[str, str],
        *,
        on_gpu: bool,
        threads: int | None,
        kernel: bool,
    ) -> None:
        self._ray: Any = ray
        self._numbers = count(1)
        self._actors: dict[NodePlace, _Actor] = {}
        self._attempts: dict[NodePlace, int] = {}
        self._reasons: dict[NodePlace, str] = {}
        self._whose: dict[Any, NodePlace] = {}
        self._looked = 0.0
        self._ours, self._on_gpu, self._threads, self._kernel = ours, on_gpu, threads, kernel
        self._begun = False
        self.data = self.put("data", data)
        try:
            self._wait_for_workers()
        except BaseException:  # including an interrupt
            self.close()
            raise
        self._begun = True

    @property
    def threads(self) -> int:
        """How many devices the largest worker trains at a time."""
        return max((actor.threads for actor in self._actors.values() if actor.ready), default=1)

    def put(self, kind: str, value: Any) -> Put:
        """Put something into the object store, for workers to fetch."""
        for name, module in list(sys.modules.items()):
            if name.startswith(PLUGINS):  # no other process has a module of that name
                self._ray.cloudpickle.register_pickle_by_value(module)
        try:
            return Put(kind, next(self._numbers), self._ray.put(value))
        except (TypeError, AttributeError, ValueError) as error:
            reason = f"{error.__cause__ or error}".partition("\n")[0]
            raise EbbflowError(
                f"the {kind} cannot be sent to workers ({reason}): define it without open files, "
                'locks and the like, or use engine.kind = "vectorised"'
            ) from error

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors = {}

    # --- what the dispatcher asks for ------------------------------------------------------------

    def ready(self) -> Sequence[NodePlace]:
        """Return the workers that can be given tasks now; looks for new ones."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._look()
        return [place for place, actor in self._actors.items() if actor.ready]

    def start(self, worker: NodePlace, task: Any) -> Any:
        """Give a worker a task; return a handle for what will come of it."""
        try:
            handle = self._actors[worker].handle.run.remote(task)
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(str(error), self._lives(worker)) from error
        self._whose[handle] = worker
        return handle

    def finished(self, handles: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Wait until one of the tasks is finished or lost, or the time is over; return all such."""
        some, _ = self._ray.wait(list(handles), num_returns=1, timeout=seconds)
        done, _ = self._ray.wait(list(handles), num_returns=len(handles), timeout=0)
        return list(dict.fromkeys([*some, *done]))

    def result(self, handle: Any) -> Any:
        """Return what came of a finished task, or raise `WorkerLostError`."""
        worker, errors = self._whose.pop(handle), self._ray.exceptions
        try:
            value = self._ray.get(handle, timeout=RESULT_SECONDS)
        except errors.RayTaskError as error:
            raise EbbflowError(
                f"node {self._name(worker)} cannot read its task ({last_line(error)}): install "
                "the same packages on all nodes"
            ) from error
        except (errors.GetTimeoutError, errors.ObjectLostError) as error:
            reason = f"a result did not arrive: {type(error).__name__}"
            raise self._on_the_way(reason, worker) from error
        except errors.RayError as error:
            raise WorkerLostError(str(error), self._lives(worker)) from error
        if isinstance(value, Failed) and isinstance(value.error, FetchError):
            raise self._on_the_way(str(value.error), worker)
        return value

    def lost(self, worker: NodePlace) -> None:
        """Forget a worker that is gone."""
        if worker in self._actors:
            self._end(worker, f"the one on {self._name(worker)} was lost")
        self._looked = 0.0

    def absence(self) -> str:
        """Return why there is no worker, or not on every node, as far as is known."""
        waiting = {
            place: f"the one on {actor.name} does not start"
            for place, actor in self._actors.items()
            if not actor.ready
        }
        reasons = [*dict.fromkeys((waiting | self._reasons).values())]
        return "; ".join(reasons[:3]) or "no node has a core to offer"

    # --- actors ----------------------------------------------------------------------------------

    def _wait_for_workers(self) -> None:
        """Wait until all nodes have a worker, or long enough since the first one had."""
        began, first = time.monotonic(), float("inf")
        while True:
            self._look()
            up = {place for place, actor in self._actors.items() if actor.ready}
            now = time.monotonic()
            first = min(first, now) if up else first
            if up and up >= self._attempts.keys():
                return
            if now - first > OTHERS_SECONDS:
                warnings.warn(
                    f"the run begins with {len(up)} of {len(self._attempts)} workers "
                    f"({self.absence()}): the others get work as soon as they are up, and `ray "
                    "status` shows whether somebody else has their cores",
                    EbbflowWarning,
                    stacklevel=2,
                )
                return
            if now - began > START_SECONDS:
                raise EbbflowError(
                    f"no worker could be started on the Ray cluster ({self.absence()}): install "
                    "ebbflow on its nodes, free their cores (`ray status` shows who has them), or "
                    "add nodes"
                )
            starting = [actor.facts for actor in self._actors.values() if not actor.ready]
            if starting:
                self._ray.wait(starting, num_returns=1, timeout=LOOK_SECONDS)
            else:
                time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """Start actors where there are none yet, and see which have come up."""
        self._looked = time.monotonic()
        places = {place: (name, have) for place, name, have in self._places()}
        for place in [place for place in self._actors if place not in places]:
            self._actors.pop(place)
        for known in (self._attempts, self._reasons):
            for place in [place for place in known if place not in places]:
                known.pop(place)
        for place, (name, have) in places.items():
            if place not in self._actors and self._attempts.get(place, 0) < ATTEMPTS:
                self._attempts[place] = self._attempts.get(place, 0) + 1
                self._actors[place] = self._started(place, name, have)
        starting = {a.facts: place for place, a in self._actors.items() if not a.ready}
        if starting:
            up, _ = self._ray.wait(list(starting), num_returns=len(starting), timeout=0)
            for facts in up:
                self._admit(starting[facts])

    def _places(self) -> Iterator[tuple[NodePlace, str, dict[str, float]]]:
        """Yield where an actor can be, the node's name, and what the actor may claim there."""
        for node in self._ray.nodes():
            have, node_id = node.get("Resources", {}), node["NodeID"]
            cores, gpus = have.get("CPU", 0), int(have.get("GPU", 0))
            actors = gpus if self._on_gpu else int(cores >= 1)
            name = f"{node.get('NodeManagerAddress', 'unknown')} ({node_id[:6]})"
            for number in range(actors if node["Alive"] else 0):
                claim = {"num_cpus": cores // actors, "num_gpus": 1 if self._on_gpu else 0}
                yield NodePlace(node_id, number), name, claim

    def _started(self, place: NodePlace, name: str, claim: Mapping[str, float]) -> _Actor:
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        remote = self._ray.remote(WorkerHost).options(
            **claim, scheduling_strategy=affinity(place.node, soft=False), max_restarts=0
        )
        environment = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        threads = self._threads or max(1, int(claim["num_cpus"]))
        handle = remote.remote(environment, threads)
        device = "cuda" if self._on_gpu else "cpu"
        facts = handle.facts.remote(self.data, device, self._kernel)
        return _Actor(handle, name, facts, 1 if self._on_gpu else threads)

    def _admit(self, place: NodePlace) -> None:
        """Take an actor in that has come up, or leave it out: at once if it differs."""
        actor = self._actors[place]
        try:
            facts = self._ray.get(actor.facts, timeout=RESULT_SECONDS)
        except self._ray.exceptions.RayError as error:
            reason = last_line(error)
            self._end(place, f"the one on {actor.name} failed: {reason}")
            if self._attempts[place] >= ATTEMPTS:
                self._leave_out(
                    f"node {actor.name} cannot start a worker ({reason}): install the same "
                    "versions of ebbflow and of all that it needs there, or take the node out of "
                    "the cluster"
                )
            return
        if differs := disagreement(actor.name, facts, self._ours):
            self._end(place, differs)
            self._attempts[place] = ATTEMPTS
            self._leave_out(differs)
            return
        actor.ready, self._attempts[place] = True, 0
        self._reasons.pop(place, None)

    def _end(self, place: NodePlace, reason: str) -> None:
        """End an actor, and note why."""
        self._ray.kill(self._actors.pop(place).handle)
        self._reasons[place] = reason

    def _leave_out(self, why: str) -> None:
        """Refuse a node; once the run has begun, go on without it and say so."""
        if not self._begun:
            raise EbbflowError(why)
        warnings.warn(f"{why}; it is left out", EbbflowWarning, stacklevel=2)

    def _on_the_way(self, reason: str, worker: NodePlace) -> WorkerLostError:
        """Return what is raised if something did not get from one node to another."""
        blame = (
            f"workers one after another were cut off at this task ({reason} on "
            f"{self._name(worker)}): see to the network between the nodes, and to the room in "
            "/dev/shm and /tmp on each"
        )
        return WorkerLostError(reason, self._lives(worker), blame)

    def _lives(self, worker: NodePlace) -> bool:
        return any(place == worker for place, _, _ in self._places())

    def _name(self, worker: NodePlace) -> str:
        return self._actors[worker].name if worker in self._actors else worker.node[:6]
