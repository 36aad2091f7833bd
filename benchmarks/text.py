"""Time rounds on texts: whole vectors, device after device, beside the sample space.

Averaged embeddings, 30,522 words x 300, four classes; 100 devices, five steps of 128 texts. For
every algorithm the two engines must first agree in float64 (on a few devices, over three rounds);
then they take turns in float32, and the peak memory of the sample space is that of a process of
its own. "Per core" is the ratio of the seconds of all cores, which a busy neighbour disturbs less;
"apart" is the largest difference of the models in float64. With EBBFLOW_DATA the texts are AG News,
otherwise words as frequent as in English. Read the ratios, not the seconds.

    python benchmarks/text.py [--algorithms fedavg scaffold ...] [--repeats 3] [--devices 100]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from ebbflow.algorithms import ALGORITHMS, distilled
from ebbflow.bench.works import text_work
from ebbflow.core.algorithm import Algorithm, Broadcast, Population
from ebbflow.core.local import Cohort, Engine, Lane, Recipe
from ebbflow.core.memory import kept_memory
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import Examples, Model, ModelState, State
from ebbflow.data import datasets
from ebbflow.data.batches import local_batches
from ebbflow.engines import SampleSpace, Sequential
from ebbflow.models import MODELS

STEPS, BATCH, RATE = 5, 128, 0.05
TEXTS = STEPS * BATCH
CHECKED = 4  # devices whose rounds are compared in float64
NAMES = (
    *("fedavg", "fedprox", "scaffold", "moon", "fedacg"),
    *("feddyn", "scaffold-authors", "continuous"),
)


def texts(devices: int, real: bool = True) -> Examples:
    """Return AG News, if it is here, or texts of made-up words."""
    if not real or "EBBFLOW_DATA" not in os.environ:
        return text_work(devices, TEXTS, BATCH).examples
    train = datasets.load("agnews").train
    order = generator(0, "text", "order").permutation(len(train))
    at = torch.from_numpy(np.resize(order, devices * TEXTS))
    return Examples(train.x[at], train.y[at])


def algorithm_of(name: str, teacher: ModelState) -> Algorithm:
    if name == "continuous":
        return distilled(ALGORITHMS["fedavg"](), teacher, (0, 1), 0.5)
    return ALGORITHMS[name]()


class Federation:
    """Rounds of one algorithm with one engine."""

    def __init__(self, engine: Engine, algorithm: Algorithm, start: ModelState, devices: int):
        self.engine, self.algorithm, self.model = engine, algorithm, start
        self.devices = devices
        population = Population(devices, devices * TEXTS)
        self.server = algorithm.init_server(start.theta, population)
        self.clients: dict[int, State] = {}
        self.seconds: list[float] = []
        self.computed: list[float] = []

    def round(self, t: int) -> None:
        shards = np.arange(self.devices * TEXTS).reshape(self.devices, TEXTS)
        batches = [
            local_batches(generator(0, "text", t, k), shard, STEPS, BATCH, "one_pass")
            for k, shard in enumerate(shards)
        ]
        everyone = tuple(range(self.devices))
        who = Cohort(1, t, everyone, batches, (TEXTS,) * self.devices, (), tuple(shards))
        began, before = time.perf_counter(), time.process_time()
        theta, extras = self.algorithm.broadcast(self.model.theta, self.server)
        lane = Lane(
            self.algorithm, Broadcast(theta, self.model.buffers, extras), RATE, self.clients
        )
        ((total, states),) = self.engine([lane], who)
        theta, self.server = self.algorithm.server_step(self.model.theta, self.server, total)
        self.model = ModelState(theta, total.buffers / total.samples)
        self.clients = self.clients | states
        self.seconds.append(time.perf_counter() - began)
        self.computed.append(time.process_time() - before)


def start_of(model: Model, dtype: torch.dtype, name: str = "initial") -> ModelState:
    return ModelState(*(t.to(dtype) for t in model.initial(torch_generator(0, "text", name))))


def apart(name: str, model: Model, data: Examples) -> float:
    """Return the largest difference of the models after three rounds in float64."""
    start, teacher = (start_of(model, torch.float64, each) for each in ("initial", "teacher"))
    engine = SampleSpace(model, data, Recipe())
    both = [
        Federation(each, algorithm_of(name, teacher), start, CHECKED)
        for each in (Sequential(model, data, Recipe()), engine)
    ]
    for t in (1, 2, 3):
        for each in both:
            each.round(t)
    engine.close()
    return float((both[0].model.theta - both[1].model.theta).abs().max())


def timed(
    name: str, model: Model, data: Examples, devices: int, repeats: int
) -> list[tuple[float, float]]:
    """Return the median seconds of a round, on the clock and of all cores; they take turns."""
    start, teacher = (start_of(model, torch.float32, each) for each in ("initial", "teacher"))
    engine = SampleSpace(model, data, Recipe())
    both = [
        Federation(each, algorithm_of(name, teacher), start, devices)
        for each in (Sequential(model, data, Recipe()), engine)
    ]
    for t in range(1, repeats + 2):  # in the first round, texts are made sparse and compared
        for each in both:
            each.round(t)
    engine.close()
    return [
        (statistics.median(each.seconds[1:]), statistics.median(each.computed[1:])) for each in both
    ]


def peak(name: str, devices: int) -> float:
    """Return the peak memory of a process that only trains in the sample space, in GB."""
    torch.set_num_threads(1)
    data = texts(devices, real=False)  # reading AG News takes more than training on it
    model = MODELS["embedding"]((data.x.shape[1],), 4)
    with kept_memory():
        engine = SampleSpace(model, data, Recipe())
        start, teacher = (start_of(model, torch.float32, each) for each in ("initial", "teacher"))
        federation = Federation(engine, algorithm_of(name, teacher), start, devices)
        for t in (1, 2, 3):
            federation.round(t)
        engine.close()
    # Not from getrusage, which a child process begins with its parent's peak.
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (line,) = (each for each in status.splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the machine and a line per algorithm."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--algorithms", nargs="*", default=list(NAMES), choices=NAMES)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--devices", type=int, default=100)
    chosen = options.parse_args(arguments)
    torch.set_num_threads(1)
    data = texts(chosen.devices)
    model = MODELS["embedding"]((data.x.shape[1],), 4)
    cores = len(os.sched_getaffinity(0))
    print(f"{platform.machine()}, {cores} cores, torch {torch.__version__}")
    print(
        f"one round: {chosen.devices} devices x {STEPS} steps x {BATCH}, embedding 30,522 x 300\n"
    )
    print(f"{'':18}{'dense':>9}{'sample':>9}{'ratio':>8}{'per core':>10}{'peak':>9}   apart")
    with kept_memory():
        for name in chosen.algorithms:
            difference = apart(name, model, data)
            if difference > 1e-6:
                raise SystemExit(
                    f"{name}: the engines differ by {difference:.1e}, nothing is timed"
                )
            (dense, of_dense), (sample, of_sample) = timed(
                name, model, data, chosen.devices, chosen.repeats
            )
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                memory = process.submit(peak, name, chosen.devices).result()
            print(
                f"{name:18}{dense:7.2f} s{sample:7.2f} s{dense / sample:8.1f}"
                f"{of_dense / of_sample:10.1f}{memory:6.2f} GB   {difference:.0e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
