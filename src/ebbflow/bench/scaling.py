"""Sessions of more and more devices: what a local step costs, and what the memory does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import torch

from ebbflow import experiment
from ebbflow.bench.machine import machine, versions
from ebbflow.bench.memory import Peak
from ebbflow.bench.results import Check, Row, Suite
from ebbflow.config import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.memory import use_one_arena
from ebbflow.core.rng import torch_generator
from ebbflow.core.types import Dataset, Examples
from ebbflow.layers import Layers

SIZES = (100, 1_000, 10_000)
POOL, SAMPLES, TESTED = 60_000, 600, 100
STEPS = 5
EQUAL = 1e-4  # between the losses that the two engines record


def pool(samples: int = POOL) -> Dataset:
    """Return random data of MNIST's shape, with few test samples: it is training that is timed."""
    draw = torch_generator(0, "bench", "scaling")
    x = torch.rand(samples, 784, generator=draw)
    test = Examples(torch.rand(TESTED, 784, generator=draw), torch.arange(TESTED) % 10)
    return Dataset("pool", Examples(x, torch.arange(samples) % 10), test, 10)


def configuration(devices: int, rounds: int, engine: str = "vectorised") -> Config:
    """Return one session of FedAvg whose devices draw their samples from one pool."""
    layers = Layers()
    for key, value in {
        "dataset": "mnist",
        "methods": ["previous"],
        "seeds": [0],
        "sessions": 1,
        "rounds": rounds,
        "partition.kind": "pool",
        "partition.overlap": 1.0,
        "partition.samples": SAMPLES,
        "partition.devices": devices,
        "local.steps": STEPS,
        "engine.kind": engine,
    }.items():
        layers.add_key(key, value, "bench")
    return layers.config()


class _Held:
    """What a process that measures one size keeps."""

    dataset: Dataset
    config: Config


def _prepare(devices: int, rounds: int) -> None:
    use_one_arena()
    _Held.dataset, _Held.config = pool(), configuration(devices, rounds)


def _peak() -> int:
    """Run the experiment and return the peak of anonymous memory."""
    with Peak() as peak:
        experiment.run(_Held.config, dataset=_Held.dataset)
    return peak.bytes


def _seconds() -> float:
    """Run the experiment and return how long it took."""
    start = time.perf_counter()
    experiment.run(_Held.config, dataset=_Held.dataset)
    return time.perf_counter() - start


def engines_apart(devices: int = 5) -> float:
    """Return the largest difference between the losses of the two engines."""
    data = pool(2_000)
    fast, plain = (
        [r.loss for r in experiment.run(configuration(devices, 2, kind), dataset=data).rounds]
        for kind in ("vectorised", "sequential")
    )
    return max(abs(a - b) for a, b in zip(fast, plain, strict=True))


def scaling(repeats: int, peers: Path | None = None, sizes: Sequence[int] = SIZES) -> Suite:
    """Time a session of each size, in turns, every size in a process of its own."""
    difference = engines_apart()
    if not difference <= EQUAL:
        raise EbbflowError(f"scaling: the engines' losses are {difference:.1e} apart: not timed")
    # As many local steps for every size: smaller sessions run more rounds.
    rounds = {size: max(sizes) // size for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    with ExitStack() as stack:
        processes = {
            size: stack.enter_context(
                ProcessPoolExecutor(1, get_context("spawn"), _prepare, (size, rounds[size]))
            )
            for size in sizes
        }
        memory = {size: process.submit(_peak).result() for size, process in processes.items()}
        for _ in range(repeats):
            for size, process in processes.items():
                seconds[size].append(process.submit(_seconds).result())
    rows = [
        Row(
            name=f"{size:,} devices",
            seconds=seconds[size],
            difference=difference,
            memory=memory[size],
            steps=size * STEPS * rounds[size],
            devices=size,
            note=f"{rounds[size]} round{'s' * (rounds[size] > 1)} a repeat",
        )
        for size in sizes
    ]
    costs = [row.median / (row.steps or 1) for row in rows]
    return Suite(
        name="scaling",
        title=f"sessions of {', '.join(f'{size:,}' for size in sizes)} devices",
        rows=rows,
        checks=[
            Check(
                what="time of a local step, largest beside smallest",
                found=max(costs) / min(costs),
                bound=1.2,
            ),
            Check(
                what="anonymous memory, largest beside smallest",
                found=max(memory.values()) / max(1, min(memory.values())),
                bound=1.1,
            ),
        ],
        notes=[
            f"Softmax regression, FedAvg, {SAMPLES} samples a device from one pool of {POOL:,}, "
            f"{STEPS} local steps. Each size has a process of its own; a repeat is a whole "
            "`ebbflow.run`, set-up, draws and evaluation included. The difference is between the "
            "losses of a small session with either engine."
        ],
        machine=machine(),
        versions=versions(),
    )
