"""Small inputs for every model of the registry."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.func import vjp

from ebbflow.core.types import Buffers, Model, ModelState, Output, Theta
from ebbflow.models import MODELS

IMAGE = (1, 28, 28)
TINY: dict[str, tuple[tuple[int, ...], int, dict[str, int]]] = {
    "softmax": (IMAGE, 10, {}),
    "mlp": (IMAGE, 10, {}),
    "cnn": ((3, 8, 16), 5, {}),
    "resnet18": ((3, 16, 16), 5, {}),
    "resnet34": ((1, 16, 16), 5, {}),
    "embedding": ((9,), 4, {"vocabulary": 50, "width": 6}),
}
"""Shape of a sample, classes and parameters that each kind of model can be tried with."""


@cache
def tiny(kind: str) -> Model:
    shape, classes, parameters = TINY[kind]
    return MODELS[kind](shape, classes, **parameters)


def images(count: int, shape: tuple[int, ...] = IMAGE) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(3))


def texts(count: int, length: int = 9, vocabulary: int = 50) -> Tensor:
    """Return texts of various lengths, right-padded with 0; each has at least one token."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randint(1, vocabulary, (count, length), generator=draw)
    lengths = torch.randint(1, length + 1, (count, 1), generator=draw)
    return torch.where(torch.arange(length) < lengths, x, 0)


def inputs(kind: str, count: int) -> Tensor:
    return texts(count) if kind == "embedding" else images(count, TINY[kind][0])


def draws(model: Model, count: int) -> Tensor | None:
    """Return the noise of a training batch, for a model that takes any."""
    if model.noise is None:
        return None
    return torch.rand(count, *model.noise, generator=torch.Generator().manual_seed(5))


def start(model: Model, seed: int = 0) -> ModelState:
    return model.initial(torch.Generator().manual_seed(seed))


def doubled(state: ModelState) -> ModelState:
    return ModelState(state.theta.double(), state.buffers.double())


def random_cotangent(output: Output) -> Output:
    draw = torch.Generator().manual_seed(9)
    logits, features = (
        torch.randn(part.shape, generator=draw, dtype=part.dtype) for part in output
    )
    return Output(logits, features)


def pulled_back(
    model: Model, state: ModelState, x: Tensor, noise: Tensor | None
) -> tuple[Output, Tensor, Buffers]:
    """Return outputs in training, a random cotangent's gradient by autograd, and the buffers."""

    def forward(theta: Theta) -> tuple[Output, Buffers]:
        return model.forward(theta, state.buffers, x, noise, True)

    output, pullback, buffers = vjp(forward, state.theta, has_aux=True)  # type: ignore[misc]  # three
    (gradient,) = pullback(random_cotangent(output))
    return output, gradient, buffers


class Tied(nn.Module):
    """Uses one weight twice."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 6), nn.Linear(6, 6)
        self.down.weight = self.up.weight

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.down(self.up(x).tanh())
        return logits
