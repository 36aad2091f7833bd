"""Distillation against the previous session's model: the Continuous baseline's loss."""

from __future__ import annotations

from collections.abc import Sequence

from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.objectives import Distillation, Target
from ebbflow.core.types import ModelState, State


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

    objective = Distillation(base.objective, kl, temperature, target, tuple(known))
    return base._replace(anchors=anchors, objective=objective)
