"""Time one round of federated training with each engine, on the same work.

100 devices, five steps of 128 samples, softmax regression on 784 inputs. Before anything is timed
the engines must agree; then they take turns, so that a busy neighbour disturbs all alike. Read the
ratios, not the seconds.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Broadcast
from ebbflow.core.local import Cohort, Engine, Lane, Recipe
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import Examples
from ebbflow.data.batches import local_batches
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import MODELS

DEVICES, SAMPLES, STEPS, BATCH = 100, 600, 5, 128
REPEATS = 7


def work() -> tuple[Examples, Cohort]:
    """Return random inputs of MNIST's size and a cohort that trains on them."""
    draw = torch_generator(0, "benchmark")
    x = torch.rand(DEVICES * SAMPLES, 784, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    shards = torch.arange(len(x)).view(DEVICES, SAMPLES).numpy()
    batches = tuple(
        local_batches(generator(0, "benchmark", device), shard, STEPS, BATCH, "one_pass")
        for device, shard in enumerate(shards)
    )
    return Examples(x, y), Cohort(1, 1, tuple(range(DEVICES)), batches, (SAMPLES,) * DEVICES)


def alternate(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median seconds of each contender; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(REPEATS):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Print the machine and a line per engine."""
    torch.set_num_threads(1)
    examples, cohort = work()
    model = MODELS["softmax"]((784,), 10)
    state = model.initial(torch_generator(0, "initial"))
    lane = Lane(ALGORITHMS["fedavg"](), Broadcast(state.theta, state.buffers, {}), 0.01, {})
    cores = len(os.sched_getaffinity(0))
    engines: dict[str, tuple[Engine, Sequence[Lane]]] = {
        "sequential": (Sequential(model, examples, Recipe()), [lane]),
        "vectorised, 1 worker": (Vectorised(model, examples, Recipe(), workers=1), [lane]),
        f"vectorised, {cores} workers": (Vectorised(model, examples, Recipe()), [lane]),
        "the same, 3 methods": (Vectorised(model, examples, Recipe()), [lane] * 3),
    }
    deltas = [engine(lanes, cohort)[0][0].delta for engine, lanes in engines.values()]
    apart = max(float((delta - deltas[0]).abs().max()) for delta in deltas) / (DEVICES * SAMPLES)
    if apart > 1e-6:
        raise SystemExit(f"the engines differ by {apart:.1e}: nothing is timed")
    medians = alternate(
        {name: partial(engine, lanes, cohort) for name, (engine, lanes) in engines.items()}
    )
    print(f"{platform.machine()}, {cores} cores, torch {torch.__version__}")
    print(f"one round: {DEVICES} devices x {STEPS} steps x {BATCH}, softmax 784 -> 10")
    print(f"largest difference between the engines' models: {apart:.1e}\n")
    reference = medians["sequential"]
    for name, seconds in medians.items():
        print(
            f"{name:24} {seconds * 1000:7.1f} ms   {reference / seconds:5.2f} x the sequential one"
        )


if __name__ == "__main__":
    main()
