"""The derivatives of objectives in the outputs: in closed form for ours, else by autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softmax

from ebbflow.core.algorithm import Objective, cross_entropy
from ebbflow.core.dense import OutputSlopes
from ebbflow.core.objectives import Contrast, Distillation, compared
from ebbflow.core.types import Labels, Output, State

SMALLEST = 1e-8  # lengths below count as this much, as in torch's cosine_similarity


class Compared(NamedTuple):
    """What a mini-batch's outputs are compared with.

    ``one_hot [B, C]`` has a one for each label, where labels are classes. ``weight`` is what each
    sample counts, the same for all. ``anchor(name)`` returns the outputs of a frozen model, which
    are computed when they are asked for; ``names`` lists these models.
    """

    labels: Labels
    one_hot: Tensor | None
    weight: float
    names: tuple[str, ...]
    anchor: Callable[[str], Output]
    client: State


def slopes(objective: Objective, output: Output, batch: Compared) -> OutputSlopes:
    """Return the derivative of the batch's weighted loss in the outputs."""
    if compared(objective) is None:
        if objective is cross_entropy:
            return OutputSlopes(_of_classes(output, batch))
        # By type: what is made of one of these records may compute something else.
        if type(objective) is Contrast:
            return _of_contrast(objective, output, batch)
        if type(objective) is Distillation:
            return _of_distillation(objective, output, batch)
    return _by_autograd(objective, output, batch)


def _of_classes(output: Output, batch: Compared) -> Tensor:
    """Return softmax minus one-hot."""
    assert batch.one_hot is not None
    return softmax(output.logits, -1).sub_(batch.one_hot).mul_(batch.weight)


def _of_contrast(objective: Contrast, output: Output, batch: Compared) -> OutputSlopes:
    """Add the derivative of mu softplus((cos(z, previous) - cos(z, global)) / tau) in z."""
    base = slopes(objective.base, output, batch)
    mu = objective.mu * float(batch.client["seen"])
    if not mu:  # a first visit: the frozen models need not be asked
        return base
    z = output.features
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    bounded = length.clamp(min=SMALLEST)

    def towards(name: str) -> tuple[Tensor, Tensor]:
        """Return a frozen model's features over both lengths, and the cosine."""
        other = batch.anchor(name).features
        norm = torch.linalg.vector_norm(other, dim=-1, keepdim=True).clamp(min=SMALLEST)
        direction = other / norm / bounded
        return direction, (direction * z).sum(-1, keepdim=True)

    (away, far), (near, close) = towards("previous"), towards("global")
    apart = far - close
    share = torch.sigmoid(apart / objective.tau).mul_(batch.weight * mu / objective.tau)
    # A length that was raised to the smallest does not change with z.
    along = torch.where(length > SMALLEST, apart / (bounded * bounded), 0.0)
    features = (away - near - along * z).mul_(share)
    if base.features is not None:
        features += base.features
    return OutputSlopes(base.logits, features)


def _of_distillation(objective: Distillation, output: Output, batch: Compared) -> OutputSlopes:
    """Add kl T (student - target), both at temperature T."""
    base = slopes(objective.base, output, batch)
    target = objective.wanted(batch.anchor("teacher").logits, batch.labels)
    student = softmax(output.logits / objective.temperature, -1)
    scale = batch.weight * objective.kl * objective.temperature
    return base._replace(logits=torch.add(base.logits, student - target, alpha=scale))


def _by_autograd(objective: Objective, output: Output, batch: Compared) -> OutputSlopes:
    """Return the derivative by a graph over the outputs alone."""
    anchors = {name: batch.anchor(name) for name in batch.names}
    leaves = Output(*(part.detach().requires_grad_() for part in output))
    with torch.enable_grad():
        loss = (objective(leaves, batch.labels, anchors, batch.client) * batch.weight).sum()
    logits: Tensor | None = None
    features: Tensor | None = None
    if loss.requires_grad:  # it may be a constant
        logits, features = torch.autograd.grad(loss, leaves, allow_unused=True)
    return OutputSlopes(torch.zeros_like(output.logits) if logits is None else logits, features)
