"""Small rounds to put engines through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from ebbflow.core.algorithm import Algorithm, Broadcast, Population
from ebbflow.core.local import Cohort, Engine, Lane, Recipe, Trained
from ebbflow.core.types import EngineHints, Examples, Model, ModelState, State
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import from_module, mlp, softmax

SHAPE, CLASSES, ROWS = (1, 8, 8), 10, 400
RECIPE = Recipe(0.9, radius=None)
EVERYBODY = Population(devices=50, samples=2000)
Sizes = Sequence[Sequence[int]]
"""How many samples each step of each device takes."""

KINDS = [(20, 20, 7), (1,), (5, 5), (16,), (33, 2), (1, 1, 1, 1), (40,)]
MANY: list[tuple[int, ...]] = [KINDS[(3 * k * k + k) % len(KINDS)] for k in range(37)]


def convnet() -> Model:
    """Return a model that is trained device by device."""
    return from_module(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, CLASSES)),
        "convnet",
    )


def normed() -> Model:
    """Return a model whose buffers and gradients depend on the batch as a whole.

    Its activation is none that dense networks have, so that it goes through autograd.
    """
    return from_module(
        lambda: nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.BatchNorm1d(16),
            nn.ELU(),
            nn.Linear(16, CLASSES),
        ),
        "normed",
    )


def conv_normed() -> Model:
    """Return a small network with convolutions and batch statistics."""
    return from_module(
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2),
            nn.BatchNorm2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(18, CLASSES),
        ),
        "conv_normed",
    )


def deep() -> Model:
    """Return a dense network of a user: three layers, tanh, dropout, no bias in the middle."""
    return from_module(
        lambda: nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 12),
            nn.Tanh(),
            nn.Dropout(0.2),
            nn.Linear(12, 9, bias=False),
            nn.ReLU(),
            nn.Linear(9, CLASSES),
        ),
        "deep",
    )


def softmax_in_torch() -> Model:
    """Return softmax regression without its fused kernel."""
    return replace(softmax(SHAPE, CLASSES), name="softmax in torch", hints=EngineHints())


MODELS = [softmax(SHAPE, CLASSES), softmax_in_torch(), mlp(SHAPE, CLASSES), convnet()]
"""Models that any batch fits."""


def examples(shape: tuple[int, ...] = SHAPE, classes: int = CLASSES) -> Examples:
    draw = torch.Generator().manual_seed(4)
    x = torch.randn(ROWS, *shape, generator=draw)
    return Examples(x, torch.randint(classes, (ROWS,), generator=draw))


def cohort(sizes: Sizes, seed: int = 0) -> Cohort:
    """Return devices 10, 11, ... whose steps have these sizes; row 0 belongs to nobody."""
    draw = np.random.default_rng(seed)
    batches = tuple(
        tuple(draw.integers(1, ROWS, size=size) for size in device_sizes) for device_sizes in sizes
    )
    samples = tuple(sum(device_sizes) for device_sizes in sizes)
    return Cohort(3, 2, tuple(range(10, 10 + len(sizes))), batches, samples, (7, "test"))


def shifts(total: int) -> dict[str, Tensor]:
    """Return what an `Affine` may shift the gradient of so many parameters by, in all forms."""
    return {
        "a number": torch.tensor(0.01),
        "one entry": torch.tensor([0.01]),
        "float64": torch.tensor(0.01, dtype=torch.float64),
        "a vector": torch.linspace(-0.1, 0.1, total),
        "every second entry": torch.full((2 * total,), 0.01)[::2],
    }


def permuted(who: Cohort, order: Sequence[int]) -> Cohort:
    """Return the same devices in another order."""
    return who._replace(
        devices=tuple(who.devices[k] for k in order),
        batches=tuple(who.batches[k] for k in order),
        samples=tuple(who.samples[k] for k in order),
        shards=[who.shards[k] for k in order] if len(who.shards) else (),
    )


def lane(
    model: Model, algorithm: Algorithm, lr: float = 0.1, clients: dict[int, State] | None = None
) -> Lane:
    start = model.initial(torch.Generator().manual_seed(1))
    theta, extras = algorithm.broadcast(start.theta, algorithm.init_server(start.theta, EVERYBODY))
    return Lane(algorithm, Broadcast(theta, start.buffers, extras), lr, clients or {})


def reference(
    model: Model, lanes: Sequence[Lane], who: Cohort, data: Examples | None = None
) -> list[Trained]:
    return Sequential(model, data or examples(), RECIPE)(lanes, who)


def vectorised(
    model: Model,
    lanes: Sequence[Lane],
    who: Cohort,
    block: int | None = None,
    workers: int | None = 2,
    data: Examples | None = None,
    recipe: Recipe = RECIPE,
) -> list[Trained]:
    engine = Vectorised(model, data or examples(), recipe, block, workers)
    try:
        return engine(lanes, who)
    finally:
        engine.close()


ENGINES: dict[str, type[Sequential] | type[Vectorised]] = {
    "sequential": Sequential,
    "vectorised": Vectorised,
}


def engine_on(name: str, model: Model, data: Examples | None = None) -> Engine:
    return ENGINES[name](model, data or examples(), RECIPE)


def tensors(trained: Trained) -> dict[str, Tensor]:
    """Return all that a round gave a lane, by name."""
    upload, clients = trained
    named = {"delta": upload.delta, "buffers": upload.buffers}
    named |= {"samples": upload.samples, "devices": upload.devices, **upload.extras}
    for device, state in clients.items():
        named |= {f"{device}.{name}": value for name, value in state.items()}
    return named


def same_bits(one: Trained, other: Trained) -> bool:
    left, right = tensors(one), tensors(other)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def assert_agree(one: Trained, other: Trained, at: Lane, within: float = 1e-5) -> None:
    """Compare models, buffers, extras and states, relative to the size of a model's entries."""
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    scale = float(at.shared.theta.abs().max())
    for name in left:
        # Sums over devices are compared as means; a device's own state as it is.
        count = left["samples"] if name in ("delta", "buffers") else left["devices"]
        by = 1.0 if "." in name else float(count)
        torch.testing.assert_close(
            left[name] / by, right[name] / by, rtol=within, atol=within * scale, msg=name
        )


class Federation:
    """Rounds of one algorithm, one after another: broadcast, train, add up, the server's step."""

    def __init__(
        self,
        engine: Engine,
        algorithm: Algorithm,
        start: ModelState,
        population: Population = EVERYBODY,
    ) -> None:
        self.engine = engine
        self.algorithm = algorithm
        self.model = start
        self.server = algorithm.init_server(start.theta, population)
        self.clients: dict[int, State] = {}

    def round(self, who: Cohort, lr: float = 0.1) -> None:
        theta, extras = self.algorithm.broadcast(self.model.theta, self.server)
        shared = Broadcast(theta, self.model.buffers, extras)
        lane = Lane(self.algorithm, shared, lr, self.clients)
        ((total, states),) = self.engine([lane], who)
        theta, self.server = self.algorithm.server_step(self.model.theta, self.server, total)
        self.model = ModelState(theta, total.buffers / total.samples)
        self.clients |= states

    def tensors(self) -> dict[str, Tensor]:
        """Return the global model, the server's state and every device's, by name."""
        named = {"theta": self.model.theta, "buffers": self.model.buffers, **self.server}
        for device, state in self.clients.items():
            named |= {f"{device}.{name}": value for name, value in state.items()}
        return named


VISITS: list[dict[int, tuple[int, ...]]] = [
    {10: (20, 20, 7), 11: (5,), 12: (16, 9), 13: (33, 2), 14: (2, 2, 2, 2), 15: (40,)},
    {12: (17, 9), 15: (8,), 16: (5, 5, 3), 17: (12,)},
    {10: (3, 3), 12: (25,), 14: (2,), 16: (18, 18), 18: (7, 6)},
]
"""Who takes part in three rounds, and how many samples each of their steps has."""


def visits() -> list[Cohort]:
    """Return three rounds with unequal steps, in which devices stay away, come back and join."""
    rounds = []
    for t, steps in enumerate(VISITS, start=1):
        who = cohort(list(steps.values()), seed=t)
        samples = tuple(10 + 7 * (device % 5) for device in steps)
        rounds.append(who._replace(round=t, devices=tuple(steps), samples=samples))
    return rounds
