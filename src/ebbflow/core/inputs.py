"""From rows of a data set to a model's inputs: normalising, cropping, flipping, noise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ebbflow.core.types import Pixels


def draw_crops(draw: np.random.Generator, rows: int, pixels: Pixels) -> NDArray[np.int64]:
    """Return a row (down, right, mirrored) for every image, from one draw per image, in order."""
    steps = 2 * pixels.crop + 1
    numbers = draw.integers(steps * steps * 2, size=rows)
    down, rest = np.divmod(numbers, steps * 2)
    right, mirrored = np.divmod(rest, 2)
    return np.stack([down, right, mirrored * pixels.flip], axis=1)


def augmented(x: Tensor, crops: Tensor, pixels: Pixels) -> Tensor:
    """Pad every image of ``x [n, C, H, W]`` with black, crop it, and mirror it where asked to.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> pixels = Pixels((0.0,), (1.0,), crop=1, flip=True)
    >>> augmented(image, torch.tensor([[1, 1, 0]]), pixels).tolist()
    [[[[1, 2], [3, 4]]]]
    >>> augmented(image, torch.tensor([[0, 1, 1]]), pixels).tolist()
    [[[[0, 0], [2, 1]]]]
    """
    count, _, height, width = x.shape
    padded = functional.pad(x, (pixels.crop,) * 4)
    down, right, mirrored = crops.T[:, :, None]
    columns = torch.arange(width, device=x.device)
    columns = torch.where(mirrored > 0, columns.flip(0), columns)
    across = (right + columns)[:, None, :]
    along = (down + torch.arange(height, device=x.device))[:, :, None]
    which = torch.arange(count, device=x.device)[:, None, None]
    return padded[which, :, along, across].movedim(-1, 1)


def prepared(x: Tensor, pixels: Pixels | None) -> Tensor:
    """Return a model's inputs: pixels normalised per channel, everything else unchanged."""
    if pixels is None:
        return x
    mean = torch.tensor(pixels.mean, device=x.device)[:, None, None]
    std = torch.tensor(pixels.std, device=x.device)[:, None, None]
    return (x.float() / 255 - mean) / std
