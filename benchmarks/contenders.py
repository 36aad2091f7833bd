"""The contenders of this process: our engines, a plain torch loop, and parts of a round alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import threads
from benchmarks.workloads import Workload
from ebbflow.algorithms import ALGORITHMS
from ebbflow.core import vector
from ebbflow.core.algorithm import Broadcast, Population
from ebbflow.core.local import Engine, Lane
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import ModelState, State
from ebbflow.data.batches import local_batches
from ebbflow.engines import engine_for


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


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


class _DenseEmbedding(nn.Module):
    """Averaged embeddings as usually written, with a dense gradient for the whole table."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(vocabulary, width, mode="sum", padding_idx=0)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        counts = (x != 0).sum(1, keepdim=True) + 1e-6
        logits: Tensor = self.classifier(self.words(x) / counts)
        return logits


class _FlatParameters(nn.Module):
    """Any other model of ours, trained through autograd on its flat parameter vector."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.workload = workload
        self.theta = nn.Parameter(workload.initial.theta.clone())

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.workload.model.forward(
            self.theta, self.workload.initial.buffers, x, None, True
        )
        return output.logits


def _module(workload: Workload) -> nn.Module:
    shapes = workload.model.layout.shapes
    if workload.build is not None:
        return workload.build().to(workload.initial.theta.dtype)
    if workload.model.name == "softmax":
        return nn.Linear(shapes[0][1], shapes[0][0])
    if workload.model.name == "embedding":
        return _DenseEmbedding(shapes[0][0], shapes[0][1], shapes[1][0])
    return _FlatParameters(workload)


class PlainLoop:
    """The usual loop: one device after another, a module, autograd, ``torch.optim.SGD``.

    Every device starts from the initial batch statistics; no gradient depends on them.
    """

    def __init__(self, workload: Workload, on_threads: int) -> None:
        self.workload = workload
        self.turn = 0
        self._threads = on_threads
        self._module = _module(workload)
        self._global = workload.initial.theta.clone()

    @property
    def theta(self) -> Tensor:
        """The averaged model."""
        return self._global

    def __call__(self) -> None:
        """Train one round."""
        cohort = self.workload.cohort(self.turn)
        total = sum(cohort.samples)
        parameters = list(self._module.parameters())
        with threads(self._threads):
            average = [torch.zeros_like(parameter) for parameter in parameters]
            for steps, samples in zip(cohort.batches, cohort.samples, strict=True):
                self._load(parameters)
                self._train([torch.from_numpy(rows) for rows in steps])
                with torch.no_grad():
                    for mean, parameter in zip(average, parameters, strict=True):
                        mean.add_(parameter, alpha=samples / total)
            self._global = torch.cat([mean.view(-1) for mean in average])
        self.turn += 1

    def _load(self, parameters: Sequence[Tensor]) -> None:
        parts = torch.split(self._global, [parameter.numel() for parameter in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))

    def _train(self, steps: Sequence[Tensor]) -> None:
        examples = self.workload.examples
        optimiser = torch.optim.SGD(
            self._module.parameters(), self.workload.lr, self.workload.recipe.momentum
        )
        for rows in steps:
            optimiser.zero_grad()
            loss = functional.cross_entropy(self._module(examples.x[rows]), examples.y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


class ProductsOnly:
    """Only the matrix products of every step of dense layers, one single-threaded worker per core.

    Forward ``h W^T``, the gradient ``C^T h`` and, behind the first layer, the way back ``C W``:
    over batches gathered in advance, with random numbers in the place of what layers compute.
    """

    def __init__(self, workload: Workload, workers: int) -> None:
        tensors = vector.unflatten(workload.initial.theta, workload.model.layout).values()
        self._weights = [tensor for tensor in tensors if tensor.dim() == 2]
        self._pool = ThreadPoolExecutor(workers, "products", torch.set_num_threads, (1,))
        batches = [
            workload.examples.x[torch.from_numpy(rows)].flatten(1)
            for steps in workload.cohort(0).batches
            for rows in steps
        ]
        self._made = {
            len(x): [torch.rand(len(x), len(weight)) for weight in self._weights] for x in batches
        }
        share = -(-len(batches) // workers)
        self._shares = [batches[at : at + share] for at in range(0, len(batches), share)]

    def __call__(self) -> None:
        """Compute the products of one round."""
        for _ in self._pool.map(self._multiply, self._shares):
            pass

    @property
    def multiply_adds(self) -> int:
        """How many multiply-adds the products of one round are."""
        samples = sum(len(x) for batches in self._shares for x in batches)
        first, *others = (weight.numel() for weight in self._weights)
        return samples * (2 * first + 3 * sum(others))

    def _multiply(self, batches: Sequence[Tensor]) -> None:
        for x in batches:
            made = self._made[len(x)]
            for weight, before, slope in zip(self._weights, [x, *made], made, strict=False):
                torch.mm(before, weight.T)
                torch.mm(slope.T, before)
                if before is not x:
                    torch.mm(slope, weight)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()


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


class Gemm:
    """One square matrix product on one thread: an upper limit on the operations per second."""

    def __init__(self, size: int = 2048, dtype: torch.dtype = torch.float32) -> None:
        draw = torch_generator(0, "bench", "gemm")
        self._a, self._b = (torch.rand(size, size, generator=draw).to(dtype) for _ in range(2))
        self.operations = 2 * size**3

    def __call__(self) -> None:
        """Multiply."""
        torch.mm(self._a, self._b)
