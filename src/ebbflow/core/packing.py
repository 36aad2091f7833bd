"""Several inputs of a sample as one vector, so that everything else sees one array.

A model that takes an image and a few numbers, or texts and numbers, gets them back by name or by
place just before its forward pass (`unpacked`). Whole numbers, such as tokens, are exact in
float32 up to 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.errors import EbbflowError

LARGEST = 2**24
"""Whole numbers up to this one are exact in float32."""


class InputPart(NamedTuple):
    """One of several inputs: its name, the shape of one sample, and whether it is whole numbers."""

    name: str
    shape: tuple[int, ...]
    whole: bool = False


class InputLayout(NamedTuple):
    """Where several inputs lie in a sample's vector; ``named`` inputs are passed by keyword."""

    parts: tuple[InputPart, ...]
    named: bool = True

    @property
    def total(self) -> int:
        """The length of a sample's vector."""
        return sum(math.prod(part.shape) for part in self.parts)


def packed(
    inputs: Mapping[str, NDArray[np.generic]] | Sequence[NDArray[np.generic]], place: str
) -> tuple[NDArray[np.float32], InputLayout]:
    """Return inputs ``[N, ...]`` laid end to end, ``[N, D]``, and where each of them lies.

    >>> x, layout = packed({"age": np.ones((2, 1)), "scan": np.zeros((2, 3, 3))}, "the data")
    >>> x.shape, layout.total
    ((2, 10), 10)
    """
    named = isinstance(inputs, Mapping)
    pairs = list(inputs.items()) if isinstance(inputs, Mapping) else list(enumerate(inputs))
    if not pairs:
        raise EbbflowError(f"{place}: there are no inputs; give at least one array")
    count = len(pairs[0][1])
    parts, columns = [], []
    for name, array in pairs:
        if len(array) != count:
            raise EbbflowError(
                f"{place}: input {name} has {len(array)} samples and input {pairs[0][0]} has "
                f"{count}; give both as many"
            )
        whole = array.dtype.kind in "biu" and array.dtype != np.uint8
        if array.dtype.kind not in "biuf":
            raise EbbflowError(f"{place}: input {name} is of type {array.dtype}; give numbers")
        if whole and array.size and int(np.abs(array.astype(np.int64)).max()) > LARGEST:
            raise EbbflowError(
                f"{place}: input {name} holds whole numbers beyond {LARGEST:,}, which single "
                "precision does not have; number them from 0"
            )
        shape = array.shape[1:] or (1,)
        parts.append(InputPart(str(name), shape, whole))
        scale = np.float32(1 / 255) if array.dtype == np.uint8 else np.float32(1)
        columns.append(array.reshape(count, -1).astype(np.float32) * scale)
    return np.concatenate(columns, axis=1), InputLayout(tuple(parts), named)


def unpacked(x: Tensor, layout: InputLayout) -> dict[str, Tensor]:
    """Return the inputs of a batch ``[B, D]`` by name, each in its own shape."""
    found, start = {}, 0
    for name, shape, whole in layout.parts:
        end = start + math.prod(shape)
        part = x[..., start:end].reshape(*x.shape[:-1], *shape)
        found[name] = part.long() if whole else part
        start = end
    return found
