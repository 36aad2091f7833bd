"""Continuous: continue from the previous model, and distil from it while training.

This is the continual-learning baseline. By default it trains with FedAvg whatever algorithm it is
compared under, as in the paper's tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.objectives import Distillation, Target
from ebbflow.core.ranges import NotNegative, Positive
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.types import ModelState, State


def continuous(
    kl: NotNegative = 1.0,
    temperature: Positive = 1.0,
    base: Literal["fedavg", "algorithm"] = "fedavg",
    target: Target = "teacher",
    first: Literal["none", "uniform"] = "none",
) -> Start:
    """Return the start w^(s,1) = w^(s-1,T+1), with that model as the session's teacher.

    Args:
        kl: The weight of the distillation in the loss.
        temperature: Divides the logits of teacher and student.
        base: Whether sessions train with FedAvg or with the compared algorithm.
        target: See `ebbflow.core.objectives.Target`.
        first: The teacher of session P+1 after a fresh start: none, or an all-zero model, whose
            predictions are uniform (the authors' code).
    """

    def choose(situation: Situation) -> StartingPoint:
        carried = situation.carried
        if situation.goes_on:
            return StartingPoint(carried, teacher=carried, teacher_labels=situation.known_labels)
        all_zero = ModelState(torch.zeros_like(carried.theta), torch.zeros_like(carried.buffers))
        return StartingPoint(carried, teacher=all_zero if first == "uniform" else None)

    def adapt(algorithm: Algorithm, point: StartingPoint) -> Algorithm:
        if point.teacher is None:
            return algorithm
        return distilled(algorithm, point.teacher, point.teacher_labels, kl, temperature, target)

    return Start(choose, algorithm="fedavg" if base == "fedavg" else None, adapt=adapt)


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
        known: The labels that the teacher has learnt, for the mixed target.
        kl: The weight of the distillation.
        temperature: Divides the logits of teacher and student; T^2 keeps the gradients' scale.
        target: See `ebbflow.core.objectives.Target`.
    """
    if kl == 0:
        return base

    def anchors(shared: Broadcast, client: State) -> dict[str, ModelState]:
        return {**base.anchors(shared, client), "teacher": teacher}

    objective = Distillation(base.objective, kl, temperature, target, tuple(known))
    return base._replace(anchors=anchors, objective=objective)
