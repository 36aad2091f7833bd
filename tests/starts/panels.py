"""Panels whose losses are known in closed form, and panels of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.mixtures import Basis, expanded, sample_losses
from ebbflow.core.survey import Array, Expansion, LossSums, Panel, Survey, SurveyPlan
from ebbflow.core.types import ModelState


@dataclass(frozen=True)
class Curve:
    """A group of devices that weighs ``weight`` and has a loss with two derivatives."""

    weight: float
    loss: Callable[[Array], float]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


def quadratic(weight: float, least: Array, curvature: Array, loss: float = 0.0) -> Curve:
    """Return the group with the loss c + (a - m)^T H (a - m) / 2."""
    return Curve(
        weight,
        lambda a: loss + float((a - least) @ curvature @ (a - least)) / 2,
        lambda a: curvature @ (a - least),
        lambda a: curvature,
    )


class CurvePanel:
    """A panel of groups with known losses that counts its questions.

    A group has so many ``samples``, which are all alike. Losses are the same on both halves, unless
    there are groups to ``judge`` by.
    """

    noisy = False

    def __init__(
        self,
        groups: Sequence[Curve],
        share: float = 1.0,
        judge: Sequence[Curve] | None = None,
        samples: int = 1,
    ) -> None:
        self.groups, self.share, self.samples = groups, share, samples
        self.judges = groups if judge is None else judge
        self.expanded: list[Array] = []
        self.compared: list[tuple[int, str]] = []

    def losses(self, mixtures: Sequence[Array], half: str) -> LossSums:
        self.compared.append((len(mixtures), half))
        groups = self.judges if half == "judge" else self.groups
        weight = np.array([group.weight for group in groups])
        loss = np.array([[g.weight * g.loss(a) for a in mixtures] for g in groups])
        return LossSums(weight, loss, loss.T @ loss / self.samples)

    def expansion(self, mixture: Array, half: str = "learn") -> Expansion:
        self.expanded.append(mixture)
        groups = self.judges if half == "judge" else self.groups
        return Expansion(
            np.array([g.weight for g in groups]),
            np.array([g.weight * g.loss(mixture) for g in groups]),
            np.array([g.weight * g.slope(mixture) for g in groups]),
            np.array([g.weight * g.curvature(mixture) for g in groups]),
        )

    def mean(self, mixture: Array) -> float:
        return float(self.losses([mixture], "learn").means[0])


def towards(target: Tensor, asked: list[SurveyPlan] | None = None) -> Survey:
    """Return the survey of two groups whose loss is half the squared distance from a target."""

    def survey(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
        if asked is not None:
            asked.append(plan)
        away = np.stack([(model.theta - target).double().numpy() for model in models])
        gram = away @ away.T  # weights add up to one, so the distance is that of the mixture
        groups = [quadratic(weight, np.zeros(len(models)), gram) for weight in (1.0, 2.0)]
        return CurvePanel(groups)

    return survey


Samples = tuple[Tensor, Tensor, Tensor]
"""Inputs, labels and what each sample counts."""


@dataclass
class SamplePanel:
    """A panel of groups of samples, the same ones for learning and judging."""

    basis: Basis
    groups: Sequence[Samples]
    share: float = 1.0
    noisy: bool = False

    def losses(self, mixtures: Sequence[Array], half: str) -> LossSums:
        stacked = torch.from_numpy(np.stack(mixtures)).to(self.basis.thetas)
        weight, loss, products = [], [], np.zeros((len(mixtures), len(mixtures)))
        for x, y, counts in self.groups:
            each = (sample_losses(self.basis, stacked, x, y) * counts).double().numpy()
            weight.append(float(counts.sum()))
            loss.append(each.sum(1))
            products += each @ each.T
        return LossSums(np.array(weight), np.array(loss), products)

    def expansion(self, mixture: Array, half: str = "learn") -> Expansion:
        alpha = torch.from_numpy(mixture).to(self.basis.thetas)
        sums = [expanded(self.basis, alpha, *group) for group in self.groups]
        weight = np.array([float(counts.sum()) for _, _, counts in self.groups])
        return Expansion(weight, *(np.stack([s[i].numpy() for s in sums]) for i in range(3)))
