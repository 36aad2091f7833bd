"""The contenders of this process: our engines, and parts of a round alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from benchmarks.workloads import Workload
from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Broadcast, Population
from ebbflow.core.local import Engine, Lane
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import ModelState, State
from ebbflow.data.batches import local_batches
from ebbflow.engines import engine_for


def fast_engine(workload: Workload, workers: int | None = None) -> Engine:
    """Return the engine that an experiment with this model runs on."""
    return engine_for(workload.model, workload.examples, workload.recipe, workers=workers)


class EngineRounds:
    """Rounds of one algorithm on one of our engines, for one or several models in lockstep."""

    def __init__(
        self,
        workload: Workload,
        engine: Engine,
        models: Sequence[ModelState] = (),
        algorithm: str = "fedavg",
    ) -> None:
        self.workload = workload
        self.engine = engine
        self.models = list(models) or [workload.initial]
        self.turn = 0
        self._algorithm = ALGORITHMS[algorithm]()
        samples = workload.cohorts[0].samples
        population = Population(len(samples), sum(samples))
        self._servers = [self._algorithm.init_server(m.theta, population) for m in self.models]
        self._clients: list[dict[int, State]] = [{} for _ in self.models]

    def __call__(self) -> None:
        """Train one round: broadcast, local steps, sums, server step."""
        lanes = []
        for model, server, clients in zip(self.models, self._servers, self._clients, strict=True):
            theta, extras = self._algorithm.broadcast(model.theta, server)
            shared = Broadcast(theta, model.buffers, extras)
            lanes.append(Lane(self._algorithm, shared, self.workload.lr, clients))
        trained = self.engine(lanes, self.workload.cohort(self.turn))
        for i, (total, states) in enumerate(trained):
            theta, self._servers[i] = self._algorithm.server_step(
                self.models[i].theta, self._servers[i], total
            )
            self.models[i] = ModelState(theta, total.buffers / total.samples)
            self._clients[i] = self._clients[i] | states
        self.turn += 1


def starts(workload: Workload, count: int) -> list[ModelState]:
    """Return models that differ, like those of methods that start a session differently."""
    return [
        ModelState(
            workload.initial.theta
            + 0.01
            * torch.randn(
                workload.initial.theta.shape, generator=torch_generator(0, "bench", "start", i)
            ),
            workload.initial.buffers,
        )
        for i in range(count)
    ]


class GatherOnly:
    """Only the gathering of the rows of every step, one worker per core."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload = workload
        self._pool = ThreadPoolExecutor(workers, "gather", torch.set_num_threads, (1,))
        self._steps = [
            torch.from_numpy(rows) for steps in workload.cohort(0).batches for rows in steps
        ]
        self._share = -(-len(self._steps) // workers)

    def __call__(self) -> None:
        """Gather the rows of one round."""
        firsts = range(0, len(self._steps), self._share)
        for _ in self._pool.map(self._gather, firsts):
            pass

    def _gather(self, first: int) -> None:
        for rows in self._steps[first : first + self._share]:
            torch.index_select(self.workload.examples.x, 0, rows)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()


class DrawsOnly:
    """Only the drawing of every device's mini-batches."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.turn = 0

    def __call__(self) -> None:
        """Draw the mini-batches of one round."""
        cohort = self.workload.cohort(0)
        for device, shard in zip(cohort.devices, cohort.shards, strict=True):
            draw = generator(0, "bench", "draws", self.turn, device)
            local_batches(draw, shard, len(cohort.batches[0]), self.workload.batch, "one_pass")
        self.turn += 1
