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
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def as_safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the parts of a safetensors file: its header, then the numbers of each tensor.

    >>> from safetensors.torch import load
    >>> load(b"".join(as_safetensors({"a": torch.ones(2), "b": torch.tensor(3)})))["b"]
    tensor(3)
    """
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
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data
