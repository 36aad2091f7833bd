"""Contenders that ebbflow's settings do not reach: a plain loop and products, in processes alone.

    python -m benchmarks.alone FOLDER NAME

ebbflow tells MKL to compute reproducibly (``MKL_CBWR``), which on Intel's processors costs speed.
Nobody who multiplies matrices by themselves has set that, so it must not slow down what ebbflow is
compared with. Here the variable is not set, because nothing imports ebbflow's engines. These
processes speak the protocol of `benchmarks.peer_runs`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.nets import TensorExamples, net, set_threads
from benchmarks.peers.protocol import (
    DriverLink,
    ExportedWorkload,
    Floats,
    cores,
    mkl_setting,
    read_workload,
    thread_options,
    workload_folder,
)
from benchmarks.timing import as_in_a_run
from ebbflow.models import MODELS


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

    def __init__(self, workload: ExportedWorkload) -> None:
        super().__init__()
        facts = workload.facts
        shape = tuple(facts["inputs"])
        self.model = MODELS[facts["model"]](shape, facts["classes"], **facts["arguments"])
        self.start = torch.from_numpy(workload.buffers)
        self.theta = nn.Parameter(torch.from_numpy(workload.theta.copy()))

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.model.forward(self.theta, self.start, x, None, True)
        return output.logits


def _module(workload: ExportedWorkload) -> nn.Module:
    if workload.facts["model"] == "embedding":
        (vocabulary, width), (classes, _), _ = workload.facts["shapes"]
        return _DenseEmbedding(vocabulary, width, classes)
    if workload.facts["model"] == "resnet18":
        return _FlatParameters(workload)
    return net(workload)


class PlainLoop:
    """The usual loop: one device after another, a module, autograd, ``torch.optim.SGD``.

    No gradient depends on running averages of batch statistics, so that they are not averaged.
    """

    def __init__(self, workload: ExportedWorkload) -> None:
        self.turn = 0
        self._facts = workload.facts
        self._examples = TensorExamples(workload)
        self._module = _module(workload)
        self._global = torch.from_numpy(workload.theta.copy())

    def theta(self) -> Floats:
        """Return the averaged model."""
        theta: Floats = self._global.numpy()
        return theta

    def __call__(self) -> None:
        """Train one round."""
        parameters = list(self._module.parameters())
        average = [torch.zeros_like(parameter) for parameter in parameters]
        devices = self._facts["devices"]  # all have as many samples
        for device in range(devices):
            self._load(parameters)
            self._train(device)
            with torch.no_grad():
                for mean, parameter in zip(average, parameters, strict=True):
                    mean.add_(parameter, alpha=1 / devices)
        self._global = torch.cat([mean.view(-1) for mean in average])
        self.turn += 1

    def _load(self, parameters: Sequence[Tensor]) -> None:
        parts = torch.split(self._global, [parameter.numel() for parameter in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))

    def _train(self, device: int) -> None:
        optimiser = torch.optim.SGD(
            self._module.parameters(), self._facts["lr"], self._facts["momentum"]
        )
        for x, y in self._examples.batches(self.turn, device):
            optimiser.zero_grad()
            loss = functional.cross_entropy(self._module(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


class ProductsOnly:
    """Only the matrix products of every step of dense layers, one single-threaded worker per core.

    Forward ``h W^T``, the gradient ``C^T h`` and, behind the first layer, the way back ``C W``:
    over batches gathered in advance, with random numbers in the place of what layers compute.
    """

    def __init__(self, workload: ExportedWorkload, workers: int) -> None:
        tensors = map(torch.from_numpy, workload.tensors().values())
        self._weights = [tensor for tensor in tensors if tensor.dim() == 2]
        self._pool = ThreadPoolExecutor(workers, "products", torch.set_num_threads, (1,))
        batches = [
            torch.from_numpy(np.array(workload.x[rows])).flatten(1)
            for device in range(workload.facts["devices"])
            for rows in workload.batches(0, device)
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


class Gemm:
    """One square matrix product on one thread: an upper limit on the operations per second."""

    SIZE = 2048

    def __init__(self, size: int = SIZE) -> None:
        self._a, self._b = (torch.rand(size, size) for _ in range(2))

    def __call__(self) -> None:
        """Multiply."""
        torch.mm(self._a, self._b)

    @staticmethod
    def operations(size: int = SIZE) -> int:
        """Return the floating-point operations of a product."""
        return 2 * size**3


def _without_model() -> Floats:
    raise SystemExit("it trains no model")


def _rounds(
    driver: DriverLink, theta: Callable[[], Floats], options: Sequence[str] = ("",)
) -> Iterator[str]:
    return driver.rounds(theta, ["torch"], options, note=mkl_setting())


def plain_loop(driver: DriverLink) -> None:
    """Train a round whenever it is asked for, on as many threads as it is told to."""
    loop = PlainLoop(read_workload(workload_folder()))
    for option in _rounds(driver, loop.theta, thread_options()):
        set_threads(option)
        loop()


def products(driver: DriverLink) -> None:
    """Compute the products of a round whenever it is asked for."""
    alone = ProductsOnly(read_workload(workload_folder()), cores())
    for _ in _rounds(driver, _without_model):
        alone()
    alone.close()


def gemm(driver: DriverLink) -> None:
    """Multiply two large matrices whenever it is asked for."""
    alone = Gemm()
    for _ in _rounds(driver, _without_model):
        alone()


CONTENDERS = {"plain loop": plain_loop, "products": products, "gemm": gemm}


def main() -> None:
    driver = DriverLink()
    with as_in_a_run():  # memory is kept as it is for ours
        CONTENDERS[sys.argv[2]](driver)


if __name__ == "__main__":
    main()
