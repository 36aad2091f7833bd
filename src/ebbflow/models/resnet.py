"""ResNet-18 and ResNet-34 with a projection head, as MOON's authors and the paper use them.

The body is the standard one for ImageNet with the standard tensor names (``conv1.weight``,
``layer2.0.downsample.0.weight``), so that published weights fit; see `ebbflow.models.weights`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Model
from ebbflow.models.checks import image_shape
from ebbflow.models.module import from_module

FEATURES = 256
_WIDTHS = (64, 128, 256, 512)
_GROUPS = 32
_FEW = 2  # pixels on a side: up to here a convolution is faster as a matrix product

Norm = Callable[[int], nn.Module]
"""Makes a normalisation of so many channels."""


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(min(_GROUPS, channels), channels)


_NORMS: dict[str, Norm] = {"batch": nn.BatchNorm2d, "group": _group_norm}


class _Conv3x3(nn.Conv2d):
    """A 3x3 convolution that a CPU trains as a matrix product if its output is at most 2x2 pixels.

    On images that small, most weights of a window multiply padding, and the library's gradient in
    the weights runs at a tenth of its usual speed: it took half of a step of ResNet-18
    (docs/models.md has the figures).
    """

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__(inputs, width, 3, stride, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution; in evaluation and of larger images it is torch's own."""
        height, width = x.shape[-2:]
        down, right = (range(0, side, self.stride[0]) for side in (height, width))
        if not self.training or not x.is_cpu or max(len(down), len(right)) > _FEW:
            return super().forward(x)
        if height == width == 1:  # everything except the window's centre is padding
            centre = self.weight.flatten(2)[:, :, 4].contiguous()
            return linear(x.flatten(1), centre)[:, :, None, None]
        windows = torch.stack(list(_windows(x, down, right)), 1)
        pixels = linear(windows.flatten(2), self.weight.flatten(1))
        return pixels.view(len(x), len(down), len(right), -1).permute(0, 3, 1, 2)


def _windows(x: Tensor, down: range, right: range) -> Iterator[Tensor]:
    """Yield the 3x3 window around each of these pixels, ``[B, C, 9]``."""
    height, width = x.shape[-2:]
    pixels = x.flatten(2).unbind(2)
    padding = torch.zeros_like(pixels[0])
    for row, column in itertools.product(down, right):
        seen = [
            pixels[i * width + j] if 0 <= i < height and 0 <= j < width else padding
            for i, j in itertools.product((row - 1, row, row + 1), (column - 1, column, column + 1))
        ]
        yield torch.stack(seen, -1)


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _Conv3x3(inputs, width, stride)
        self.bn1 = norm(width)
        self.conv2 = _Conv3x3(width, width)
        self.bn2 = norm(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), norm(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.bn1(self.conv1(x)).relu_()
        inner = self.bn2(self.conv2(inner))
        total: Tensor = inner + shortcut
        return total.relu_()


class _ResNet(nn.Module):
    def __init__(self, channels: int, depths: tuple[int, ...], classes: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = (64, *_WIDTHS[:-1])
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(
                _ResidualBlock(before, width, stride, norm),
                *(_ResidualBlock(width, width, 1, norm) for _ in range(depth - 1)),
            )
            for before, width, depth, stride in zip(
                inputs, _WIDTHS, depths, (1, 2, 2, 2), strict=True
            )
        )
        self.projection = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, FEATURES))
        self.classifier = nn.Linear(FEATURES, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.maxpool(self.bn1(self.conv1(x))).relu_()
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        features = self.projection(x.mean((2, 3)))
        return self.classifier(features), features


def _resnet(
    kind: str, depths: tuple[int, ...], sample_shape: tuple[int, ...], classes: int, norm: str
) -> Model:
    channels, _, _ = image_shape(kind, sample_shape)
    if norm not in _NORMS:
        raise EbbflowError(
            f"parameters.{kind}.norm = {norm!r} is no normalisation: known are {', '.join(_NORMS)}"
        )
    return from_module(
        lambda: _ResNet(channels, depths, classes, _NORMS[norm]),
        kind,
        vectorise=False,
        channels_last=True,
    )


def resnet18(sample_shape: tuple[int, ...], classes: int, norm: str = "batch") -> Model:
    """Return ResNet-18, a projection 512 - 512 ReLU - 256, and a linear classifier on top of it.

    MOON's representation is the projection. ``norm = "group"`` normalises each sample by itself,
    in 32 groups of channels: there are no buffers then, and no batch statistics.
    """
    return _resnet("resnet18", (2, 2, 2, 2), sample_shape, classes, norm)


def resnet34(sample_shape: tuple[int, ...], classes: int, norm: str = "batch") -> Model:
    """Return ResNet-34 with the head and the options of `resnet18`."""
    return _resnet("resnet34", (3, 4, 6, 3), sample_shape, classes, norm)
