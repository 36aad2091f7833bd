"""What is timed in this process: our rounds, a plain loop, and the products alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import threads
from benchmarks.works import Work
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


def fast_engine(work: Work, workers: int | None = None) -> Engine:
    """Return the engine that an experiment with this model runs on."""
    return engine_for(work.model, work.examples, work.recipe, workers=workers)


class Rounds:
    """Rounds of an algorithm with one of our engines, for one or several methods side by side."""

    def __init__(
        self,
        work: Work,
        engine: Engine,
        models: Sequence[ModelState] = (),
        algorithm: str = "fedavg",
    ) -> None:
        self.work = work
        self.engine = engine
        self.models = list(models) or [work.initial]
        self.turn = 0
        self._algorithm = ALGORITHMS[algorithm]()
        samples = work.cohorts[0].samples
        everybody = Population(len(samples), sum(samples))
        self._servers = [self._algorithm.init_server(m.theta, everybody) for m in self.models]
        self._clients: list[dict[int, State]] = [{} for _ in self.models]

    def __call__(self) -> None:
        """Train one round: broadcast, local steps, sums, the server's step."""
        lanes = []
        for model, server, clients in zip(self.models, self._servers, self._clients, strict=True):
            theta, extras = self._algorithm.broadcast(model.theta, server)
            shared = Broadcast(theta, model.buffers, extras)
            lanes.append(Lane(self._algorithm, shared, self.work.lr, clients))
        trained = self.engine(lanes, self.work.cohort(self.turn))
        for i, (total, states) in enumerate(trained):
            theta, self._servers[i] = self._algorithm.server_step(
                self.models[i].theta, self._servers[i], total
            )
            self.models[i] = ModelState(theta, total.buffers / total.samples)
            self._clients[i] = self._clients[i] | states
        self.turn += 1


def starts(work: Work, count: int) -> list[ModelState]:
    """Return models that differ, as those of methods that started a session differently."""
    return [
        ModelState(
            work.initial.theta
            + 0.01
            * torch.randn(
                work.initial.theta.shape, generator=torch_generator(0, "bench", "start", i)
            ),
            work.initial.buffers,
        )
        for i in range(count)
    ]


class _Texts(nn.Module):
    """Averaged embeddings as one would write them: a dense gradient of the whole table."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(vocabulary, width, mode="sum", padding_idx=0)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        counts = (x != 0).sum(1, keepdim=True) + 1e-6
        logits: Tensor = self.classifier(self.words(x) / counts)
        return logits


class _Pure(nn.Module):
    """Any other model of ours, through autograd."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.theta = nn.Parameter(work.initial.theta.clone())

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.work.model.forward(self.theta, self.work.initial.buffers, x, None, True)
        return output.logits


def _module(work: Work) -> nn.Module:
    shapes = work.model.layout.shapes
    if work.model.name == "softmax":
        return nn.Linear(shapes[0][1], shapes[0][0])
    if work.model.name == "embedding":
        return _Texts(shapes[0][0], shapes[0][1], shapes[1][0])
    return _Pure(work)


class PlainLoop:
    """What most code does: a device after another, a module, autograd, ``torch.optim.SGD``.

    Models with batch statistics start every device from the initial buffers, which no gradient
    depends on.
    """

    def __init__(self, work: Work, on_threads: int) -> None:
        self.work = work
        self.turn = 0
        self._threads = on_threads
        self._module = _module(work)
        self._global = work.initial.theta.clone()

    @property
    def theta(self) -> Tensor:
        """The averaged model."""
        return self._global

    def __call__(self) -> None:
        """Train one round."""
        cohort = self.work.cohort(self.turn)
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
        examples = self.work.examples
        optimiser = torch.optim.SGD(
            self._module.parameters(), self.work.lr, self.work.recipe.momentum
        )
        for rows in steps:
            optimiser.zero_grad()
            loss = functional.cross_entropy(self._module(examples.x[rows]), examples.y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


class Products:
    """The two products of every step of softmax regression and nothing else.

    ``x W^T`` and ``C^T x`` over batches that lie ready, one single-threaded worker per core.
    """

    def __init__(self, work: Work, workers: int) -> None:
        weight, _ = vector.unflatten(work.initial.theta, work.model.layout).values()
        self._pool = ThreadPoolExecutor(workers, "products", torch.set_num_threads, (1,))
        batches = [
            work.examples.x[torch.from_numpy(rows)].flatten(1)
            for steps in work.cohort(0).batches
            for rows in steps
        ]
        slopes = {len(x): torch.rand(len(x), len(weight)) for x in batches}
        share = -(-len(batches) // workers)
        self._shares = [batches[at : at + share] for at in range(0, len(batches), share)]
        self._weight, self._slopes = weight, slopes

    def __call__(self) -> None:
        """Take the products of one round."""
        for _ in self._pool.map(self._multiply, self._shares):
            pass

    def _multiply(self, batches: Sequence[Tensor]) -> None:
        for x in batches:
            torch.mm(x, self._weight.T)
            torch.mm(self._slopes[len(x)].T, x)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()


class Gather:
    """The rows of every step, brought together and nothing else, one worker per core."""

    def __init__(self, work: Work, workers: int) -> None:
        self.work = work
        self._pool = ThreadPoolExecutor(workers, "gather", torch.set_num_threads, (1,))
        self._steps = [torch.from_numpy(rows) for steps in work.cohort(0).batches for rows in steps]
        self._share = -(-len(self._steps) // workers)

    def __call__(self) -> None:
        """Bring the rows of one round together."""
        firsts = range(0, len(self._steps), self._share)
        for _ in self._pool.map(self._gather, firsts):
            pass

    def _gather(self, first: int) -> None:
        for rows in self._steps[first : first + self._share]:
            torch.index_select(self.work.examples.x, 0, rows)

    def close(self) -> None:
        """Release the workers."""
        self._pool.shutdown()


class Draws:
    """The drawing of every device's mini-batches and nothing else."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.turn = 0

    def __call__(self) -> None:
        """Draw the mini-batches of one round."""
        cohort = self.work.cohort(0)
        for device, shard in zip(cohort.devices, cohort.shards, strict=True):
            draw = generator(0, "bench", "draws", self.turn, device)
            local_batches(draw, shard, len(cohort.batches[0]), self.work.batch, "one_pass")
        self.turn += 1


class Gemm:
    """One square product, on one thread: what the machine can do at best."""

    def __init__(self, size: int = 2048, dtype: torch.dtype = torch.float32) -> None:
        draw = torch_generator(0, "bench", "gemm")
        self._a, self._b = (torch.rand(size, size, generator=draw).to(dtype) for _ in range(2))
        self.operations = 2 * size**3

    def __call__(self) -> None:
        """Multiply."""
        torch.mm(self._a, self._b)
