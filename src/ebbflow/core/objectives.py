"""Losses as records, whose parameters can be read by code that computes them faster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, log_softmax, softmax, softplus

from ebbflow.core.algorithm import Algorithm, Objective, cross_entropy
from ebbflow.core.errors import EbbflowError
from ebbflow.core.tasks import Task
from ebbflow.core.types import Labels, Output, State

Target = Literal["teacher", "mixed"]
"""What a student is compared with: the teacher's probabilities, or the label's one-hot vector
with the classes of the previous session replaced by the teacher's probabilities, normalised."""


@dataclass(frozen=True)
class TaskLoss:
    """The loss of a task whose truth is not one class for each sample."""

    task: Task

    def __call__(
        self, output: Output, labels: Labels, anchors: dict[str, Output], client: State
    ) -> Tensor:
        """Return the loss of every sample."""
        return self.task.loss(output.logits, labels)


@dataclass(frozen=True)
class Contrast:
    """MOON's loss: ``base`` + mu l_con, on the anchors ``global`` and ``previous``.

    l_con = -log(e^(cos(z, z_glob)/tau) / (e^(cos(z, z_glob)/tau) + e^(cos(z, z_prev)/tau))), or
    zero if the device's state says that it has not been ``seen`` before.
    """

    mu: float
    tau: float
    base: Objective = cross_entropy

    def __call__(
        self, output: Output, labels: Labels, anchors: dict[str, Output], client: State
    ) -> Tensor:
        """Return the loss of every sample."""

        def alike(name: str) -> Tensor:
            return cosine_similarity(output.features, anchors[name].features, dim=-1, eps=1e-8)

        contrast = softplus((alike("previous") - alike("global")) / self.tau)
        if contrast.dim() > 1:  # a place for each token
            contrast = contrast.flatten(1).mean(1)
        return self.base(output, labels, anchors, client) + self.mu * client["seen"] * contrast


@dataclass(frozen=True)
class Distillation:
    """``base`` + kl T^2 KL(target || student) on the anchor ``teacher``, at temperature T.

    ``known`` are the labels of the previous session, for the mixed target.
    """

    base: Objective
    kl: float
    temperature: float
    target: Target
    known: tuple[int, ...]

    def __call__(
        self, output: Output, labels: Labels, anchors: dict[str, Output], client: State
    ) -> Tensor:
        """Return the loss of every sample."""
        own = self.base(output, labels, anchors, client)
        task = compared(self.base)
        if task is not None:
            teacher = anchors["teacher"].logits
            apart = task.divergence(output.logits, teacher, self.temperature)
            return torch.add(own, apart, alpha=self.kl * self.temperature**2)
        p = self.wanted(anchors["teacher"].logits, labels)
        log_q = log_softmax(output.logits / self.temperature, -1)
        # xlogy is 0 at p = 0, where log p alone would be -inf.
        divergence: Tensor = (torch.special.xlogy(p, p) - p * log_q).sum(-1)
        return torch.add(own, divergence, alpha=self.kl * self.temperature**2)

    def wanted(self, logits: Tensor, labels: Labels) -> Tensor:
        """Return the probabilities that the student is compared with."""
        probabilities = softmax(logits / self.temperature, -1)
        if self.target == "teacher":
            return probabilities
        classes = torch.arange(logits.shape[-1], device=logits.device)
        old = torch.isin(classes, torch.tensor(list(self.known), device=logits.device))
        hit = labels.unsqueeze(-1) == classes
        mixed = torch.where(old, probabilities, hit.to(logits.dtype))
        return mixed / mixed.sum(-1, keepdim=True)


def compared(objective: Objective) -> Task | None:
    """Return the task that an objective is of, unless that is one class for each sample."""
    if isinstance(objective, TaskLoss):
        return objective.task
    return compared(objective.base) if isinstance(objective, Contrast | Distillation) else None


def for_task(algorithm: Algorithm, task: Task) -> Algorithm:
    """Return an algorithm that lowers the loss of a task."""
    if task.labels:
        return algorithm
    loss, objective = TaskLoss(task), algorithm.objective
    if objective is cross_entropy:
        return algorithm._replace(objective=loss)
    if isinstance(objective, Contrast) and objective.base is cross_entropy:
        return algorithm._replace(objective=replace(objective, base=loss))
    raise EbbflowError(
        f"the algorithm {algorithm.name} has an objective of its own, which is made for classes: "
        f'choose another one for task = "{task.name}"'
    )
