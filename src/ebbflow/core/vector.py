"""Models as vectors: from tensors to one vector and back, mixing, projecting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.types import Layout, ModelState


def layout_of(tensors: Iterable[tuple[str, Tensor]]) -> Layout:
    """Return where each named tensor lies once all are laid end to end."""
    pairs = [(name, tuple(tensor.shape)) for name, tensor in tensors]
    return Layout(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))


def flatten(tensors: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """Lay named tensors end to end.

    >>> layout = Layout(("weight", "bias"), ((2, 2), (2,)))
    >>> flatten({"weight": torch.eye(2), "bias": torch.ones(2)}, layout)
    tensor([1., 0., 0., 1., 1., 1.])
    """
    parts = [tensors[name].reshape(-1) for name in layout.names]
    return torch.cat(parts) if parts else torch.zeros(0)


def unflatten(vector: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return views of ``vector`` with the shapes of its tensors; the inverse of `flatten`."""
    parts = torch.split(vector, list(layout.sizes))
    triples = zip(layout.names, layout.shapes, parts, strict=True)
    return {name: part.view(shape) for name, shape, part in triples}


def all_finite(numbers: Tensor) -> bool:
    """Return whether all numbers are finite.

    A sum is finite only if every term is, and needs no memory of its own. Only if it is not finite,
    each number is looked at: it may have overflowed.

    >>> all_finite(torch.tensor([1.0, -2.0])), all_finite(torch.tensor([1.0, float("nan")]))
    (True, False)
    >>> all_finite(torch.full((2,), torch.finfo(torch.float32).max))
    True
    """
    return bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all())


NEGLIGIBLE = 2.0**-60
"""Smaller weights change no mixture: far below half a unit in the last place of a float64 sum."""


def counting(weights: Sequence[float]) -> list[int]:
    """Return the places of the weights beyond `NEGLIGIBLE`; other models need not be read.

    >>> counting([0.5, 0.0, 1e-30, 0.7, -0.2])
    [0, 3, 4]
    """
    return np.flatnonzero(np.abs(np.asarray(weights)) > NEGLIGIBLE).tolist()


def mix(models: Iterable[ModelState], weights: Sequence[float]) -> ModelState:
    """Return the weighted sum of models, parameters and buffers alike.

    Where a weight is negative, buffers are mixed with `not_negative` weights: a variance that is
    extrapolated may fall below zero. A single model of weight one is returned bit for bit. Sums are
    in float64, so that the order of equal weights does not matter. Models are consumed one by one:
    if an iterator reads them from disk, at most two are in memory at a time.

    >>> a = ModelState(torch.tensor([0.0, 2.0]), torch.zeros(0))
    >>> b = ModelState(torch.tensor([1.0, 0.0]), torch.zeros(0))
    >>> mix([a, b], [0.25, 0.75]).theta
    tensor([0.7500, 0.5000])
    """
    sums: list[Tensor] = []
    kinds: list[torch.dtype] = []
    of_buffers = weights
    if min(weights) < 0:
        of_buffers = not_negative(torch.tensor(weights, dtype=torch.float64)).tolist()
    for model, *pair in zip(models, weights, of_buffers, strict=True):
        if not sums:
            sums = [vector.double() * weight for vector, weight in zip(model, pair, strict=True)]
            kinds = [vector.dtype for vector in model]
        else:
            for total, vector, weight in zip(sums, model, pair, strict=True):
                total.add_(vector, alpha=weight)
    theta, buffers = (total.to(kind) for total, kind in zip(sums, kinds, strict=True))
    return ModelState(theta, buffers)


def mix_rows(blocks: Iterable[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted sum of the rows of several matrices, one after another, as one vector.

    All are float64, as the sums of `mix` are. Products of whole matrices pay for many models.

    >>> mix_rows([torch.eye(2).double(), torch.ones(1, 2).double()], [0.25, 0.5, 0.25])
    tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    left = torch.tensor(weights, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for rows in blocks:
        total = total + left[: len(rows)] @ rows
        left = left[len(rows) :]
    return total


def not_negative(weights: Tensor) -> Tensor:
    """Return weights with the negative ones set to zero, and the others scaled to add up to one.

    >>> not_negative(torch.tensor([1.5, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    clipped = weights.clamp(min=0)
    return clipped / clipped.sum()


def project(theta: Tensor, radius: float) -> Tensor:
    """Return the nearest point of the ball of this radius around zero (the paper's set W).

    >>> project(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    norm = torch.linalg.vector_norm(theta, dtype=torch.float64)  # float32 would overflow at 1e19
    return theta * torch.clamp(radius / torch.clamp(norm, min=1e-300), max=1.0).to(theta.dtype)
