"""ResNet-18 and ResNet-34 with a projection head, as MOON's authors and the paper use them.

The body is the usual one for ImageNet and its tensors have their usual names (``conv1.weight``,
``layer2.0.downsample.0.weight``), so that published weights fit; see `ebbflow.models.weights`.
"""

from __future__ import annotations

from collections.abc import Callable

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
_ROWS = 64  # so many samples make a product for each of several pixels worth its while

Norm = Callable[[int], nn.Module]
"""Makes a normalisation of so many channels."""


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(min(_GROUPS, channels), channels)


_NORMS: dict[str, Norm] = {"batch": nn.BatchNorm2d, "group": _group_norm}


class _Conv3x3(nn.Conv2d):
    """A 3x3 convolution that trains as a matrix product on images of at most 2x2 pixels.

    Such an image lies in every window as a whole, and up to eight of a window's nine weights
    multiply nothing but padding. A library multiplies all nine, and what it does for the weights'
    gradient takes half of a step of ResNet-18: see docs/models.md.
    """

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__(inputs, width, 3, stride, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution: in evaluation, and of larger images, as torch has it."""
        height, width = x.shape[-2:]
        if not self.training or height > 2 or width > 2:
            return super().forward(x)
        # Where the image begins in the window of each pixel that comes out.
        tops, lefts = (range(1, 1 - size, -self.stride[0]) for size in (height, width))
        if len(tops) * len(lefts) > 1 and len(x) < _ROWS:
            return super().forward(x)
        rows = x.flatten(1)
        pixels = [
            linear(rows, self.weight[:, :, top : top + height, left : left + width].flatten(1))
            for top in tops
            for left in lefts
        ]
        return torch.stack(pixels, -1).view(len(x), -1, len(tops), len(lefts))


class _Block(nn.Module):
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
                _Block(before, width, stride, norm),
                *(_Block(width, width, 1, norm) for _ in range(depth - 1)),
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
