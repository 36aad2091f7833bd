"""The engine whose leaves are computed on the nodes of a Ray cluster.

A round is cut into chunks of whole leaves. Workers train them, in any order; the driver adds up
what comes back in the order of the cohort, by the function that adds up the local engine's leaves.
So the result has the same bits, however many workers there are and whichever of them is lost.

The lanes of a round are put into the object store once, and an algorithm once for as long as it is
used. Of device states a chunk gets those of its own devices. What the driver holds at a time does
not grow with the number of devices: only so many chunks are under way as keep the workers busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from ebbflow.cluster import wire
from ebbflow.cluster.agreement import facts
from ebbflow.cluster.chunks import (
    Computed,
    EvaluationTask,
    Failed,
    Put,
    SharedLane,
    TrainingTask,
    chunk_of,
    cut,
    leaves_in_a_chunk,
    states_in,
)
from ebbflow.cluster.connection import connected
from ebbflow.cluster.dispatch import DEPTH, Dispatcher, Job, Workers
from ebbflow.cluster.pool import RayPool
from ebbflow.cluster.worker import WorldPart
from ebbflow.config.resolved import Config
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import EbbflowError, HookError
from ebbflow.core.evaluate import Score, Tally, parts, scores
from ebbflow.core.local import Cohort, Lane, Route, Trained
from ebbflow.core.types import Dataset, Examples, ModelState, State
from ebbflow.engines import fast_engine
from ebbflow.engines.failures import failures_named, place_of
from ebbflow.engines.leaves import LeafStretch
from ebbflow.runs.environment import fingerprint
from ebbflow.simulation.faults import examples_with_wrong_labels
from ebbflow.simulation.world import World

TESTS_PER_WORKER = 2
"""So many turns a worker gets in an evaluation, if the test set has as many parts."""


class SharingWorkers(Workers, Protocol):
    """Workers that fetch what is put somewhere for all of them.

    ``data`` is the data set; ``threads`` are those of a worker.
    """

    data: Put

    @property
    def threads(self) -> int:
        """How many devices a worker trains at a time."""
        ...

    def put(self, kind: str, value: Any) -> Put:
        """Put something where workers can fetch it."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class RemoteError(Exception):
    """An error on a worker; its text is the traceback there."""


class RayEngine:
    """Trains and tests on workers elsewhere, with the bits of the local engine.

    Args:
        world: What is trained.
        workers: Who trains it. They are the caller's, who closes them.
    """

    def __init__(self, world: World, workers: SharingWorkers) -> None:
        self._workers, self._dispatcher = workers, Dispatcher(workers)
        choice = world.config.engine
        # Adds up, and explains failures; its threads are idle otherwise.
        self.local = fast_engine(
            world.model,
            examples_with_wrong_labels(world),
            world.recipe,
            block=choice.block,
            workers=choice.workers,
            fused=choice.fused,
        )
        self._device = world.config.device
        self._world = world
        part = WorldPart(world.config, world.seed, world.model, workers.data)
        self._part = workers.put("world", part)
        self._session: tuple[int, Put] | None = None
        self._algorithms: dict[int, tuple[Algorithm, Put]] = {}
        self._tests: deque[tuple[Examples, Put]] = deque(maxlen=2)

    @property
    def recomputed(self) -> int:
        """How many tasks were given out again because a worker was lost."""
        return self._dispatcher.recomputed

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        cohort.refuse_nobody()
        try:
            return self.local.folded(lanes, self._leaves(lanes, cohort))
        except (EbbflowError, HookError):
            raise
        except Exception as error:  # of a hook or a model, on a worker
            failure = error
        return self.local.raise_explained(failure, lanes, cohort)

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models on the workers, while the caller goes on with the next round."""
        of_models, of_test = (
            self._workers.put("models", wire.packed(list(models))),
            self._test(test),
        )
        rows = parts(test)
        size = max(1, -(-len(rows) // (TESTS_PER_WORKER * self._count())))
        jobs = [
            self._dispatcher.submit(
                EvaluationTask(self._part, of_models, of_test, rows[first : first + size]),
                "evaluation",
            )
            for first in range(0, len(rows), size)
        ]

        def wait() -> list[Score]:
            tallies: list[list[Tally]] = []
            for job in jobs:
                tallies += self._received(job)
            with failures_named(lambda: "evaluation"):
                return scores(tallies, test, self._world.model.task)

        return wait

    def mean_state(self, states: Sequence[State], samples: Sequence[int]) -> State:
        """Return the mean of device states, weighted by D_k."""
        return self.local.mean_state(states, samples)

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Train the round again here with the reference engine, which names the device at fault."""
        self.local.explain(lanes, cohort)

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return how a worker trains the lane, and why not in a faster way."""
        return self.local.route(lane, cohort)

    def close(self) -> None:
        """Release what the engine holds; the workers are left as they are."""
        self.local.close()

    # --- a round ---------------------------------------------------------------------------------

    def _leaves(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        """Yield the leaves that workers compute, in the cohort's order."""
        session, shared = self._known_session(cohort), self._shared(lanes)
        waiting: deque[Job] = deque()
        try:
            for places in self._cut(lanes, cohort):
                chunk = chunk_of(cohort, places)
                states = wire.packed(states_in(lanes, chunk))
                task = TrainingTask(self._part, session, shared, chunk, states)
                what = f"{place_of(cohort)}, devices {chunk.devices[0]} to {chunk.devices[-1]}"
                waiting.append(self._dispatcher.submit(task, what))
                # Enough for each worker, and as many again that wait for one that is slow.
                if len(waiting) > 2 * DEPTH * self._count():
                    yield from self._computed(waiting.popleft(), cohort)
            while waiting:
                yield from self._computed(waiting.popleft(), cohort)
        finally:
            self._dispatcher.discard(list(waiting))

    def _cut(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[range]:
        leaf, devices = self.local.leaf, len(cohort.devices)
        vectors = sum(1 + len(lane.shared.extras) for lane in lanes)
        leaf_bytes = 4 * self._world.model.layout.total * vectors
        every = -(-devices // leaf)
        size = leaves_in_a_chunk(every, leaf, self._count(), self._workers.threads, leaf_bytes)
        return cut(devices, leaf, size)

    def _computed(self, job: Job, cohort: Cohort) -> Iterator[LeafStretch]:
        """Return a chunk's leaves, and count what its devices have done."""
        devices = job.task.chunk.devices
        computed: Computed = self._received(job)
        if cohort.counted is not None:
            for device, (steps, samples) in zip(devices, computed.counts, strict=True):
                cohort.counted(device, steps, samples)
        return iter(computed.leaves)

    def _received(self, job: Job) -> Any:
        """Return what came of a task, or raise the error that it ended with."""
        result = self._dispatcher.wait(job)
        job.result = job.task = None  # the object store may let go of it
        if not isinstance(result, Failed):
            return wire.unpacked(result, device=self._device)
        raise result.error from RemoteError(f"on a worker:\n{result.traceback}")

    def _count(self) -> int:
        return max(1, len(self._workers.ready()))

    # --- what workers fetch ----------------------------------------------------------------------

    def _known_session(self, cohort: Cohort) -> Put | None:
        if cohort.draws is None:
            return None
        if self._session is None or self._session[0] != cohort.session:
            session = self._world.sessions[cohort.session - 1]
            self._session = cohort.session, self._workers.put("session", session)
        return self._session[1]

    def _shared(self, lanes: Sequence[Lane]) -> Put:
        self._algorithms = {id(lane.algorithm): self._put(lane.algorithm) for lane in lanes}
        shared = [
            SharedLane(self._algorithms[id(lane.algorithm)][1], lane.shared, lane.lr)
            for lane in lanes
        ]
        return self._workers.put("lanes", wire.packed(shared))

    def _put(self, algorithm: Algorithm) -> tuple[Algorithm, Put]:
        known = self._algorithms.get(id(algorithm))
        return known or (algorithm, self._workers.put("algorithm", algorithm))

    def _test(self, test: Examples) -> Put:
        for known, put in self._tests:
            if known is test:
                return put
        put = self._workers.put("test", wire.packed(test))
        self._tests.append((test, put))
        return put


# --- for a run -----------------------------------------------------------------------------------


class _Open:
    """The workers of the run that is going on, if it computes on a cluster."""

    workers: RayPool | None = None
    dataset: Dataset | None = None


@contextmanager
def workers_for(config: Config, dataset: Dataset) -> Iterator[None]:
    """Keep a cluster's workers until the block ends, for all engines that are made within it."""
    if _Open.workers is not None and _Open.dataset is dataset:
        yield
        return
    with _opened(config, dataset) as workers:
        before = _Open.workers, _Open.dataset
        _Open.workers, _Open.dataset = workers, dataset
        try:
            yield
        finally:
            _Open.workers, _Open.dataset = before


@contextmanager
def _opened(config: Config, dataset: Dataset) -> Iterator[RayPool]:
    kernel = config.engine.fused
    ours = facts(fingerprint(dataset), device=config.device, kernel=kernel)
    with connected(config.engine.address) as ray:
        workers = RayPool(
            ray,
            wire.packed(dataset),
            ours,
            on_gpu=config.device != "cpu",
            threads=config.engine.workers,
            kernel=kernel,
        )
        try:
            yield workers
        finally:
            workers.close()


class _EngineOfItsOwn(RayEngine):
    """An engine that ends its workers when it is closed."""

    def __init__(self, world: World) -> None:
        self._stack = ExitStack()
        workers = self._stack.enter_context(_opened(world.config, world.dataset))
        try:
            super().__init__(world, workers)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Release the engine, end its workers, and leave the cluster."""
        try:
            super().close()
        finally:
            self._stack.close()


def ray_engine(world: World) -> RayEngine:
    """Return an engine on the run's workers, or on workers of its own if there are none yet."""
    if _Open.workers is not None and _Open.dataset is world.dataset:
        return RayEngine(world, _Open.workers)
    return _EngineOfItsOwn(world)
