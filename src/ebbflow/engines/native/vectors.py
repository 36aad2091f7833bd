"""Vectors as the kernels read them, which check no bounds: so many numbers, one after another."""

from __future__ import annotations

from torch import Tensor


def spread(vector: Tensor, like: Tensor) -> Tensor:
    """Return a vector of the same length and type as another, as torch does when it adds the two.

    >>> import torch
    >>> spread(torch.tensor(2), torch.zeros(3))
    tensor([2., 2., 2.])
    """
    return vector.to(like).expand_as(like).contiguous()


def fitting(vector: Tensor, like: Tensor) -> Tensor:
    """Return a vector of the same length and type as another; raise for any other vector."""
    if vector.shape != like.shape or vector.dtype != like.dtype:
        raise ValueError(
            f"a frozen model is {vector.dtype} {list(vector.shape)}, and the model that is trained "
            f"{like.dtype} {list(like.shape)}"
        )
    return vector.contiguous()
