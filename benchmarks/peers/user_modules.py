"""Modules as users write them, in torch alone, so that every contender can build them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

PIXELS, NUMBERS, SIDE, CLASSES = 784, 12, 28, 10


def _layers(widths: tuple[int, ...], *between: Callable[[int], nn.Module]) -> nn.Module:
    """Return linear layers of these widths, with other layers behind all but the last."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers.append(nn.Linear(inputs, outputs))
        if outputs != widths[-1]:
            layers += [make(outputs) for make in between]
    return nn.Sequential(*layers)


def _relu(width: int) -> nn.Module:
    return nn.ReLU()


class SmallTransformer(nn.Module):
    """The rows of a picture as tokens, two encoder layers, the mean of the tokens."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(SIDE, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.embed(x)).mean(1))
        return logits


class RowsByGru(nn.Module):
    """The rows of a picture one after another, and the last state."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.gru = nn.GRU(SIDE, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(x)
        logits: Tensor = self.head(states[:, -1])
        return logits


class TwoInputs(nn.Module):
    """A picture and a few numbers, each through a layer of its own, then both together."""

    def __init__(self) -> None:
        super().__init__()
        self.of_picture = nn.Linear(PIXELS, 64)
        self.of_numbers = nn.Linear(NUMBERS, 16)
        self.both = nn.Linear(80, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, picture: Tensor, numbers: Tensor) -> Tensor:
        seen = [self.of_picture(picture).relu(), self.of_numbers(numbers).relu()]
        logits: Tensor = self.head(self.both(torch.cat(seen, 1)).relu())
        return logits


class TwoInputsInOne(TwoInputs):
    """The same for contenders that give a module one vector."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x[:, :PIXELS], x[:, PIXELS:])


def _with_dropout(p: float) -> nn.Module:
    return _layers((PIXELS, 200, 100, CLASSES), _relu, lambda width: nn.Dropout(p))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "two layers": lambda: _layers((PIXELS, 128, CLASSES), _relu),
    "five layers": lambda: _layers((PIXELS, 256, 128, 64, 32, CLASSES), lambda width: nn.Tanh()),
    "LayerNorm": lambda: _layers((PIXELS, 128, 64, CLASSES), nn.LayerNorm, _relu),
    "BatchNorm": lambda: _layers((PIXELS, 128, 64, CLASSES), nn.BatchNorm1d, _relu),
    "Dropout": lambda: _with_dropout(0.5),
    "transformer encoder": SmallTransformer,
    "GRU": RowsByGru,
    "two inputs": TwoInputsInOne,
    "Dropout that drops nothing": lambda: _with_dropout(0.0),
}
"""By name; the last stands in for the fifth where results are compared."""
