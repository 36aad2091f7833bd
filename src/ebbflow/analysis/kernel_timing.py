"""What the fused kernel is worth here: a round of softmax regression with and without it.

The round is small, so that `ebbflow doctor` answers soon, but a real one: the engines of an
experiment train every device on mini-batches of images as large as MNIST's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import torch

from ebbflow.algorithms.fedavg import fedavg
from ebbflow.core.algorithm import Broadcast
from ebbflow.core.local import Cohort, Engine, Lane, Recipe
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import Examples, Model
from ebbflow.engines import Vectorised
from ebbflow.models import softmax

SHAPE, CLASSES, ROWS = (1, 28, 28), 10, 2000
DEVICES, STEPS, BATCH = 20, 10, 20
ROUNDS = 6  # without the kernel, the first ones try sizes of blocks


class KernelTiming(NamedTuple):
    """Seconds of a round with the kernel and without, and by how much their results differ."""

    fused: float
    mapped: float
    difference: float

    @property
    def ratio(self) -> float:
        """How many times as fast the round is with the kernel."""
        return self.mapped / self.fused


def time_kernel(rounds: int = ROUNDS) -> KernelTiming:
    """Train the same round with the kernel and without, in turns, and keep the best times.

    The best and not the mean: what else runs on the machine only ever makes a round slower.
    """
    model, examples, cohort = softmax(SHAPE, CLASSES), _examples(), _cohort()
    recipe, lanes = Recipe(0.0, radius=None), [_lane(model)]
    with (
        closing(Vectorised(model, examples, recipe)) as fused,
        closing(Vectorised(model, examples, recipe, fused=False)) as mapped,
    ):
        sums = [engine(lanes, cohort)[0][0].delta for engine in (fused, mapped)]  # to warm up
        times = [
            [_seconds(engine, lanes, cohort) for engine in (fused, mapped)] for _ in range(rounds)
        ]
    best = [min(column) for column in zip(*times, strict=True)]
    return KernelTiming(best[0], best[1], float((sums[0] - sums[1]).norm() / sums[1].norm()))


def _seconds(engine: Engine, lanes: Sequence[Lane], cohort: Cohort) -> float:
    begun = time.perf_counter()
    engine(lanes, cohort)
    return time.perf_counter() - begun


def _examples() -> Examples:
    draw = torch_generator(0, "doctor", "examples")
    x = torch.randn(ROWS, *SHAPE, generator=draw)
    return Examples(x, torch.randint(CLASSES, (ROWS,), generator=draw))


def _cohort() -> Cohort:
    draw = generator(0, "doctor", "batches")
    batches = [[draw.integers(ROWS, size=BATCH) for _ in range(STEPS)] for _ in range(DEVICES)]
    samples = (STEPS * BATCH,) * DEVICES
    return Cohort(1, 1, tuple(range(DEVICES)), batches, samples, (0, "doctor"))


def _lane(model: Model) -> Lane:
    start = model.initial(torch_generator(0, "doctor", "model"))
    return Lane(fedavg(), Broadcast(start.theta, start.buffers, {}), 0.05, {})
