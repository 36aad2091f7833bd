"""Writes tensors to a safetensors file one after another, without copying all of them first.

The safetensors library copies everything before it writes, and refuses tensors that share memory,
as those of methods in the same state do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def as_safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the parts of a safetensors file: its header, then the numbers of each tensor.

    >>> from safetensors.torch import load
    >>> load(b"".join(as_safetensors({"a": torch.ones(2), "b": torch.tensor(3)})))["b"]
    tensor(3)
    """
    names, head = _header(tensors)
    yield head
    for name in names:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        if flat.numel():  # an empty tensor may have strides that torch does not view as bytes
            yield flat.view(torch.uint8).numpy().data


def stored_size(tensors: Mapping[str, Tensor]) -> int:
    """Return the size of the file in bytes; tensors on torch's ``meta`` device will do.

    >>> tensors = {"a": torch.ones(2), "b": torch.tensor(3)}
    >>> stored_size(tensors) == len(b"".join(as_safetensors(tensors)))
    True
    """
    _, head = _header(tensors)
    return len(head) + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _header(tensors: Mapping[str, Tensor]) -> tuple[list[str], bytes]:
    """Return the names in the order of the file, and what it begins with."""
    # Wide types first, so that every tensor is aligned when the file is mapped.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, end = {}, 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return names, len(text).to_bytes(8, "little") + text
