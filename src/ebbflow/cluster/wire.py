"""Tensors as numpy arrays, anywhere in a record: arrays go through the object store uncopied."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Record = TypeVar("Record")

_AS_BITS = {torch.bfloat16: torch.int16}
"""Types that numpy does not have, and those of the same size that hold their bits."""


class Array(NamedTuple):
    """A tensor that travels; ``bits_of`` names its type if numpy does not have it."""

    values: NDArray[Any]
    bits_of: str = ""


def packed(record: Record) -> Record:
    """Return a record with an `Array` in the place of every tensor, wherever it was computed.

    >>> packed({"c": torch.zeros(2)})["c"].values
    array([0., 0.], dtype=float32)
    """
    return cast(Record, _mapped(record, _packed_leaf))


def unpacked(record: Record, *, device: str = "cpu", copied: bool = True) -> Record:
    """Return the record that was packed.

    What comes from the object store must not be written to. It is copied unless the caller knows
    that nobody will.
    """

    def leaf(value: Any) -> Any:
        return _tensor(value, device, copied) if isinstance(value, Array) else value

    return cast(Record, _mapped(record, leaf))


def _packed_leaf(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    tensor = value.detach().cpu().contiguous()
    bits = _AS_BITS.get(tensor.dtype)
    if bits is None:
        return Array(tensor.numpy())
    return Array(tensor.view(bits).numpy(), str(tensor.dtype).removeprefix("torch."))


def _tensor(array: Array, device: str, copied: bool) -> Tensor:
    values = array.values
    if copied:
        tensor = torch.from_numpy(np.array(values))
    else:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            tensor = torch.from_numpy(values)
    if array.bits_of:
        tensor = tensor.view(getattr(torch, array.bits_of))
    return tensor.to(device)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a record with a function applied to whatever is no container of ours."""
    if isinstance(value, Array):
        return leaf(value)
    if isinstance(value, tuple):
        parts = [_mapped(part, leaf) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_mapped(part, leaf) for part in value]
    if isinstance(value, dict):
        return {key: _mapped(part, leaf) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts_by_name = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return replace(value, **{name: _mapped(p, leaf) for name, p in parts_by_name.items()})
    return leaf(value)
