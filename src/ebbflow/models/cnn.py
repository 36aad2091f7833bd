"""The paper's convolutional network for SVHN: 667,178 parameters on 3x32x32 images."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Model
from ebbflow.models.checks import image_shape
from ebbflow.models.module import from_module

FEATURES = 256
_WIDTHS = (32, 32, 64, 64, 128)
_POOLED = (1, 3, 4)  # the convolutions after which height and width are halved


class _ConvNet(nn.Module):
    def __init__(self, sample_shape: tuple[int, int, int], classes: int, dropout: float) -> None:
        super().__init__()
        channels, height, width = sample_shape
        inputs = (channels, *_WIDTHS[:-1])
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, 3, padding=1) for i, o in zip(inputs, _WIDTHS, strict=True)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in _WIDTHS)
        self.fc1 = nn.Linear(_WIDTHS[-1] * (height // 8) * (width // 8), FEATURES)
        self.fc2 = nn.Linear(FEATURES, classes)
        self.dropout = dropout

    def forward(self, x: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(conv(x))
            if i in _POOLED:  # before the ReLU: the same numbers, and a quarter of the work
                x = max_pool2d(x, 2)
            x = x.relu_()
        features = self.fc1(x.flatten(1)).relu()
        return self.fc2(self._dropped(features, noise)), features

    def _dropped(self, features: Tensor, noise: Tensor | None) -> Tensor:
        if not self.training or self.dropout == 0:
            return features
        if noise is None:
            raise ValueError(f"cnn draws nothing itself: training needs noise [B, {FEATURES}]")
        return features * (noise >= self.dropout) / (1 - self.dropout)


def cnn(sample_shape: tuple[int, ...], classes: int, dropout: float = 0.4) -> Model:
    """Return five 3x3 convolutions, each with BatchNorm and ReLU, and two linear layers.

    The widths are 32, 32, 64, 64, 128, with max-pooling after the second, fourth and fifth; then
    comes a hidden layer of 256 units, with dropout in training. MOON's representation is that layer
    after its ReLU and before the dropout. A unit is kept if its uniform draw (``noise [B, 256]``)
    is at least ``dropout``.
    """
    channels, height, width = image_shape("cnn", sample_shape)
    if height % 8 or width % 8 or not height or not width:
        raise EbbflowError(
            f'model.kind = "cnn" halves an image three times and so needs a height and a width '
            f"divisible by 8, but they are {height} and {width}: choose another model, or pad"
        )
    rate = _rate(dropout)
    return from_module(
        lambda: _ConvNet((channels, height, width), classes, rate),
        "cnn",
        noise=(FEATURES,) if rate else None,
        channels_last=True,
    )


def _rate(dropout: Any) -> float:
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise EbbflowError(
            f"parameters.cnn.dropout = {dropout!r} is no share of units to drop: give a number "
            "from 0 to below 1"
        )
    return float(dropout)
