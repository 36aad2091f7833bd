"""Sessions of growing size: the time of a local step and the memory of the process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.memory import PeakMemory
from benchmarks.results import Measurement, Requirement, Suite
from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.malloc import use_one_arena
from ebbflow.core.rng import torch_generator
from ebbflow.core.types import Dataset, Examples
from ebbflow.runs.environment import machine, versions

SIZES = (100, 1_000, 10_000)
POOL, SAMPLES, TESTED = 60_000, 600, 100
STEPS = 5
TOLERANCE = 1e-4  # largest allowed difference between the losses of the two engines


def pool(samples: int = POOL) -> Dataset:
    """Return random data of MNIST's shape, with few test samples, because training is timed."""
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


class _Prepared:
    """What the process of one size prepares once and uses for every repeat."""

    dataset: Dataset
    config: Config


def _prepare(devices: int, rounds: int) -> None:
    use_one_arena()
    _Prepared.dataset, _Prepared.config = pool(), configuration(devices, rounds)


def _peak() -> int:
    """Run the experiment and return the peak of anonymous memory."""
    with PeakMemory() as peak:
        experiment.run(_Prepared.config, dataset=_Prepared.dataset)
    return peak.bytes


def _seconds() -> float:
    """Run the experiment and return how long it took."""
    start = time.perf_counter()
    experiment.run(_Prepared.config, dataset=_Prepared.dataset)
    return time.perf_counter() - start


def engine_difference(devices: int = 5) -> float:
    """Return the largest difference between the losses of the two engines in a small session."""
    data = pool(2_000)
    fast, reference = (
        [r.loss for r in experiment.run(configuration(devices, 2, kind), dataset=data).rounds]
        for kind in ("vectorised", "sequential")
    )
    return max(abs(a - b) for a, b in zip(fast, reference, strict=True))


def scaling(repeats: int, peers: Path | None = None, sizes: Sequence[int] = SIZES) -> Suite:
    """Time sessions of each size in turns, every size in a process of its own."""
    difference = engine_difference()
    if not difference <= TOLERANCE:
        raise EbbflowError(
            f"scaling: the losses of the two engines differ by {difference:.1e}, more than "
            f"{TOLERANCE:g}, so that nothing is timed"
        )
    # The same number of local steps for every size: smaller sessions run more rounds.
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
    measurements = [
        Measurement(
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
    costs = [each.median / (each.steps or 1) for each in measurements]
    return Suite(
        name="scaling",
        title=f"sessions of {', '.join(f'{size:,}' for size in sizes)} devices",
        measurements=measurements,
        requirements=[
            Requirement(
                what="time of a local step, largest beside smallest",
                value=max(costs) / min(costs),
                bound=1.2,
            ),
            Requirement(
                what="anonymous memory, largest beside smallest",
                value=max(memory.values()) / max(1, min(memory.values())),
                bound=1.1,
            ),
        ],
        notes=[
            f"Softmax regression, FedAvg, {SAMPLES} samples a device from one pool of {POOL:,}, "
            f"{STEPS} local steps. Each size has a process of its own; a repeat is a whole "
            "`ebbflow.run`, set-up, draws and evaluation included. The difference is between the "
            "losses of the two engines in a small session."
        ],
        machine=machine(),
        versions=versions(),
    )
