"""What a worker does: it holds data and model, trains chunks of cohorts, and tests models.

It knows nothing of Ray. What it needs more than once it fetches when it needs it, and keeps the
latest few: so a worker that comes late, or again after a crash, is told nothing in particular.
"""

from __future__ import annotations

import copy
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, overload

import torch

from ebbflow.cluster import wire
from ebbflow.cluster.agreement import facts
from ebbflow.cluster.chunks import (
    Chunk,
    Computed,
    EvaluationTask,
    Failed,
    Put,
    SharedLane,
    Task,
    TrainingTask,
    lane_of,
)
from ebbflow.config.resolved import Config
from ebbflow.core.client_states import StateFile
from ebbflow.core.counters import CountedBatches
from ebbflow.core.evaluate import Tally
from ebbflow.core.local import Cohort
from ebbflow.core.types import Dataset, Examples, Model, ModelState, Session
from ebbflow.engines import fast_engine
from ebbflow.engines.vectorised import Vectorised
from ebbflow.runs.environment import fingerprint
from ebbflow.runs.retention import keep_all
from ebbflow.sessions.memory import SessionRules
from ebbflow.simulation.faults import examples_with_wrong_labels, with_wrong_labels
from ebbflow.simulation.world import World, draw_cohort

Fetch = Callable[[Put], Any]
"""Gets what was put somewhere for all workers."""

KEPT = {"algorithm": 64, "test": 4}
"""How many a worker keeps of each kind, if more than one."""


class WorldPart(NamedTuple):
    """What training needs to know of a world."""

    config: Config
    seed: int
    model: Model
    data: Put


class _KnownSessions(Sequence[Session]):
    """The sessions that a worker has heard of, at their places."""

    def __init__(self) -> None:
        self.known: dict[int, Session] = {}

    def __len__(self) -> int:
        return max(self.known, default=0)

    @overload
    def __getitem__(self, place: int) -> Session: ...
    @overload
    def __getitem__(self, place: slice) -> list[Session]: ...
    def __getitem__(self, place: int | slice) -> Session | list[Session]:
        if isinstance(place, slice):
            return [self[i] for i in range(len(self))[place]]
        return self.known[place + 1]


class _Ready(NamedTuple):
    """A world under one seed, and the engine for it."""

    number: int
    world: World
    sessions: _KnownSessions
    engine: Vectorised


class LeafWorker:
    """Computes tasks, one after another.

    Args:
        fetch: Gets what is put somewhere for all workers.
        threads: How many threads train; each computes on one core.
    """

    def __init__(self, fetch: Fetch, threads: int) -> None:
        self._fetch, self._threads = fetch, threads
        self._kept: dict[str, OrderedDict[int, Any]] = {}
        self._ready: _Ready | None = None

    def facts(self, data: Put, *, device: str, kernel: bool) -> dict[str, str]:
        """Return what must be the same here as elsewhere, with the digest of the data."""
        digest = fingerprint(self._data(data, "cpu"))
        return facts(digest, device=device, kernel=kernel)

    def run(self, task: Task) -> Computed | list[list[Tally]] | Failed:
        """Do a task; an error is returned, so that it is the caller's to raise."""
        try:
            if isinstance(task, TrainingTask):
                return wire.packed(self._trained(task))
            return wire.packed(self._tested(task))
        except Exception as error:  # of any kind: hooks and models are the user's
            return Failed(_sendable(error), traceback.format_exc())

    def close(self) -> None:
        """Release what the engine holds."""
        if self._ready is not None:
            self._ready.engine.close()
            self._ready = None

    def _trained(self, task: TrainingTask) -> Computed:
        ready = self._world(task.world)
        device = ready.world.config.device
        if task.session is not None:
            ready.sessions.known = {task.chunk.session: self._of(task.session)}
        shared: list[SharedLane] = self._of(task.lanes, device)
        lanes = [
            lane_of(lane, self._of(lane.algorithm), states)
            for lane, states in zip(shared, wire.unpacked(task.states, device=device), strict=True)
        ]
        cohort = _cohort(ready.world, task.chunk)
        counted = CountedBatches(cohort.batches)
        cohort = cohort._replace(batches=counted)
        leaves = [ready.engine.portable(leaf) for leaf in ready.engine.leaves(lanes, cohort)]
        return Computed(leaves, [counted.of(place) for place in range(len(cohort.devices))])

    def _tested(self, task: EvaluationTask) -> list[list[Tally]]:
        ready = self._world(task.world)
        device = ready.world.config.device
        models: list[ModelState] = self._of(task.models, device)
        test: Examples = self._of(task.test, device)
        return ready.engine.tallies(models, test, task.rows)()

    def _world(self, put: Put) -> _Ready:
        if self._ready is None or self._ready.number != put.number:
            self.close()
            part: WorldPart = self._fetch(put)
            # Ray shows a worker the one GPU that is its own.
            device = "cuda" if torch.device(part.config.device).type == "cuda" else "cpu"
            config = part.config.model_copy(update={"device": device})
            sessions = _KnownSessions()
            nothing = torch.zeros(0)
            world = World(
                config=config,
                seed=part.seed,
                dataset=self._data(part.data, device),
                model=part.model,
                initial=ModelState(nothing, nothing),
                sessions=sessions,
                rules=SessionRules(0, "average", 0.0, True, keep_all),
                states=StateFile(0),
            )
            engine = fast_engine(
                world.model,
                examples_with_wrong_labels(world),
                world.recipe,
                block=config.engine.block,
                workers=1 if device == "cuda" else self._threads,
                fused=config.engine.fused,
            )
            self._ready = _Ready(put.number, world, sessions, engine)
        return self._ready

    def _data(self, put: Put, device: str) -> Dataset:
        """Return the data set; on a CPU it stays where it is, in memory that nobody writes to."""
        data: Dataset = self._fetched(put)
        return wire.unpacked(data, device=device, copied=False)

    def _of(self, put: Put, device: str = "cpu") -> Any:
        """Return something of which the latest few are kept, unpacked."""
        kept = self._kept.setdefault(put.kind, OrderedDict())
        if put.number not in kept:
            kept[put.number] = wire.unpacked(self._fetch(put), device=device)
            while len(kept) > KEPT.get(put.kind, 1):
                kept.popitem(last=False)
        kept.move_to_end(put.number)
        return kept[put.number]

    def _fetched(self, put: Put) -> Any:
        kept = self._kept.setdefault(put.kind, OrderedDict())
        if put.number not in kept:
            kept.clear()
            kept[put.number] = self._fetch(put)
        return kept[put.number]


def _cohort(world: World, chunk: Chunk) -> Cohort:
    """Return the chunk's devices with their mini-batches, drawn by name as anywhere else."""
    if chunk.draws is None:
        assert chunk.rows is not None
        batches, samples, shards = chunk.rows
        cohort = Cohort(chunk.session, chunk.round, chunk.devices, batches, samples, shards=shards)
    else:
        session = world.sessions[chunk.session - 1]
        purpose, steps, batch, wrong_labels = chunk.draws
        cohort = draw_cohort(
            world,
            session,
            chunk.round,
            chunk.devices,
            steps if isinstance(steps, int) else list(steps),
            batch,
            purpose,
        )
        if wrong_labels:
            cohort = with_wrong_labels(world, cohort)
    return cohort._replace(names=chunk.names, weights=chunk.weights)


def _sendable(error: Exception) -> Exception:
    """Return the error without its causes, or one of its kind that can be sent."""
    home = type(error).__module__.partition(".")[0]
    if home in ("builtins", "ebbflow", "torch"):  # a class of a user's own may hold anything
        with suppress(Exception):  # not every error can be made again
            sent = copy.copy(error)
            if str(sent) == str(error):
                return sent
    kind = next(
        (known for known in (MemoryError, RuntimeError) if isinstance(error, known)), RuntimeError
    )
    return kind(f"{type(error).__name__}: {error}")
