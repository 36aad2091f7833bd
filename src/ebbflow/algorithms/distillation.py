"""Distillation against the previous session's model: the Continuous baseline's loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softmax

from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.types import Labels, ModelState, Output, State

Target = Literal["teacher", "mixed"]
"""What the student is compared with: the teacher's probabilities, or the label's one-hot vector
with the classes of the previous session replaced by the teacher's probabilities, normalised."""


def distilled(
    base: Algorithm,
    teacher: ModelState,
    known: Sequence[int],
    kl: float = 1.0,
    temperature: float = 1.0,
    target: Target = "teacher",
) -> Algorithm:
    """Return ``base`` with kl T^2 KL(target || student) added to the loss, at temperature T.

    Args:
        base: The algorithm to train with.
        teacher: The previous session's final model, frozen and in evaluation mode.
        known: The labels of the previous session, for the mixed target.
        kl: What the distillation counts.
        temperature: By which both logits are divided; T^2 keeps the gradients' scale.
        target: See `Target`.
    """
    if kl == 0:
        return base

    def anchors(shared: Broadcast, client: State) -> dict[str, ModelState]:
        return {**base.anchors(shared, client), "teacher": teacher}

    def wanted(logits: Tensor, labels: Labels) -> Tensor:
        probabilities = softmax(logits / temperature, -1)
        if target == "teacher":
            return probabilities
        classes = logits.shape[-1]
        old = torch.isin(
            torch.arange(classes, device=logits.device),
            torch.tensor(list(known), device=logits.device),
        )
        hit = labels.unsqueeze(-1) == torch.arange(classes, device=logits.device)
        mixed = torch.where(old, probabilities, hit.to(logits.dtype))
        return mixed / mixed.sum(-1, keepdim=True)

    def objective(
        output: Output, labels: Labels, anchors: dict[str, Output], client: State
    ) -> Tensor:
        p = wanted(anchors["teacher"].logits, labels)
        log_q = log_softmax(output.logits / temperature, -1)
        # xlogy is 0 at p = 0, where log p alone would be -inf.
        divergence: Tensor = (torch.special.xlogy(p, p) - p * log_q).sum(-1)
        own = base.objective(output, labels, anchors, client)
        return torch.add(own, divergence, alpha=kl * temperature**2)

    return base._replace(anchors=anchors, objective=objective)
