"""A multilayer perceptron with one hidden layer of 200 units."""

from __future__ import annotations

import math

from torch import Tensor, nn

from ebbflow.core.types import Model
from ebbflow.models.checks import bounded, whole
from ebbflow.models.module import from_module


class _Perceptron(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.hidden(x.flatten(1)).relu()
        return self.head(features), features


def mlp(sample_shape: tuple[int, ...], classes: int, hidden: int = 200) -> Model:
    """Return inputs - ``hidden`` ReLU - classes; MOON's representation is the hidden layer."""
    inputs, hidden = math.prod(sample_shape), whole("mlp", "hidden", hidden)
    bounded("mlp", sample_shape, classes, (inputs + 1) * hidden + (hidden + 1) * classes)
    return from_module(lambda: _Perceptron(inputs, hidden, classes), "mlp")
