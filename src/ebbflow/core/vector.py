"""Models as vectors: from tensors to one vector and back, mixing, projecting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


def mix(models: Sequence[ModelState], weights: Sequence[float]) -> ModelState:
    """Return the weighted sum of models, parameters and buffers alike.

    A single model of weight one comes back bit by bit, and the sum runs in float64, so that the
    order of equal weights does not show.

    >>> a = ModelState(torch.tensor([0.0, 2.0]), torch.zeros(0))
    >>> b = ModelState(torch.tensor([1.0, 0.0]), torch.zeros(0))
    >>> mix([a, b], [0.25, 0.75]).theta
    tensor([0.7500, 0.5000])
    """

    def weighted(vectors: Sequence[Tensor]) -> Tensor:
        total = vectors[0].double() * weights[0]
        for vector, weight in zip(vectors[1:], weights[1:], strict=True):
            total.add_(vector, alpha=weight)
        return total.to(vectors[0].dtype)

    return ModelState(weighted([m.theta for m in models]), weighted([m.buffers for m in models]))


def project(theta: Tensor, radius: float) -> Tensor:
    """Return the nearest point of the ball of this radius around zero (the paper's set W).

    >>> project(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    norm = torch.linalg.vector_norm(theta, dtype=torch.float64)  # float32 would overflow at 1e19
    return theta * torch.clamp(radius / torch.clamp(norm, min=1e-300), max=1.0).to(theta.dtype)
