"""MNIST and Fashion-MNIST, from idx files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset, Examples
from ebbflow.data.local_files import LocalFiles, opened, reading
from ebbflow.data.sources import Source

NORMALISATION = {"mnist": (0.1307, 0.3081), "fmnist": (0.2861, 0.3530)}
"""Mean and standard deviation of pixel / 255 over the training images."""


def mnist(wanted: Source, files: LocalFiles) -> Dataset:
    """Read MNIST, or a data set in the same format."""
    images_train, labels_train, images_test, labels_test = files.paths
    return Dataset(
        wanted.name,
        _split(wanted, images_train, labels_train, wanted.train),
        _split(wanted, images_test, labels_test, wanted.test),
        wanted.classes,
    )


def _split(wanted: Source, images: Path, labels: Path, count: int) -> Examples:
    mean, deviation = NORMALISATION[wanted.name]
    # The steps of torchvision's ToTensor and Normalize, in float32 and in place.
    x = _read(wanted, images, (count, 28, 28)).astype(np.float32)
    x /= np.float32(255)
    x -= np.float32(mean)
    x /= np.float32(deviation)
    y = _read(wanted, labels, (count,)).astype(np.int64)
    if y.max() >= wanted.classes:
        raise EbbflowError(
            f"{labels} holds the label {y.max()} where {wanted.classes - 1} is the greatest; "
            f"{wanted.remedy}"
        )
    return Examples(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y))


def _read(wanted: Source, path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of bytes: a magic number, the shape as 32-bit integers, the values."""
    # Magic: two zeros, 8 for unsigned bytes, and the number of dimensions.
    header = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">u4").tobytes()
    with reading(path, wanted), opened(path) as stream:
        # A byte more than there should be shows a longer file, however far it would unpack.
        content = stream.read(len(header) + math.prod(shape) + 1)
    if not content.startswith(header[:4]):
        raise EbbflowError(
            f"{path} is not an idx file of {len(shape)} dimensions (it begins with "
            f"{content[:4].hex() or 'nothing'}, not {header[:4].hex()}); {wanted.remedy}"
        )
    if not content.startswith(header) or len(content) != len(header) + math.prod(shape):
        raise EbbflowError(f"{path} does not hold an array of shape {shape}; {wanted.remedy}")
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)
