"""Devices that answer wrongly: at random, or so as to do the most harm.

A wrong answer stays within the range of the honest ones, as a protocol with range proofs would
enforce: no entry is larger than the largest honest entry of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from ebbflow.core.rng import generator
from ebbflow.core.start import Situation, StartingPoint
from ebbflow.core.survey import Array, Expansion, Half, LossSums, Panel, SurveyPlan
from ebbflow.core.types import ModelState

Attack = Literal["random", "adversarial"]
SHARE = 0.1
"""The share of the asked devices that answers wrongly."""

Choose = Callable[[Situation], StartingPoint]


def disturbed(choose: Choose, attack: Attack) -> Choose:
    """Return the start, asked where some of the devices answer wrongly."""

    def asked(situation: Situation) -> StartingPoint:
        def survey(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
            single = situation.survey(models, plan._replace(groups=plan.devices, least=1))
            return DisturbedPanel(single, plan, attack, situation.session)

        return choose(replace(situation, survey=survey))

    return asked


class DisturbedPanel:
    """A panel in which `SHARE` of the devices, rounded up, answer wrongly.

    It asks every device alone, disturbs some of the answers, and then forms the sums of groups.
    """

    def __init__(self, single: Panel, plan: SurveyPlan, attack: Attack, session: int) -> None:
        self.share = single.share
        self._single, self._attack = single, attack
        self._draw = generator("disturbed", attack, session)
        self._plan = plan
        self._liars: Array | None = None

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses, some of them wrong."""
        weight, loss, products = self._single.losses(mixtures, half)
        means = loss / weight[:, None]
        liars = self._who(len(weight))
        most = means[~liars].max()
        if self._attack == "random":
            means[liars] = self._draw.random(means[liars].shape) * most
        else:  # the better a mixture is, the worse it is said to be
            honest = means[~liars].mean(0)
            means[liars] = np.clip(honest.max() + honest.min() - honest, 0, most) * 2
            means[liars] = np.minimum(means[liars], most)
        return LossSums(self._sums(weight), self._sums(means * weight[:, None]), products)

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss expanded around a mixture, where some answers are wrong."""
        weight, loss, slope, curvature = self._single.expansion(mixture, half)
        liars = self._who(len(weight))
        means, slopes = loss / weight, slope / weight[:, None]
        curvatures = curvature / weight[:, None, None]
        largest = np.abs(slopes[~liars]).max()
        if self._attack == "random":
            means[liars] = self._draw.random(int(liars.sum())) * means[~liars].max()
            slopes[liars] = (2 * self._draw.random(slopes[liars].shape) - 1) * largest
            curvatures[liars] = self._draw.permutation(curvatures[~liars])[: int(liars.sum())]
        else:  # uphill, as steeply as anybody, and without any curvature that would stop it
            uphill = -np.sign(slopes[~liars].mean(0))
            slopes[liars], curvatures[liars] = uphill * largest, 0
            means[liars] = means[~liars].mean()
        return Expansion(
            self._sums(weight),
            self._sums(means * weight),
            self._sums(slopes * weight[:, None]),
            self._sums(curvatures * weight[:, None, None]),
        )

    def _who(self, devices: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which devices answer wrongly: always the same."""
        if self._liars is None:
            count = min(devices - 1, int(np.ceil(SHARE * devices - 1e-9)))
            chosen = self._draw.permutation(devices) < count
            self._liars = chosen.astype(np.float64)
        return np.asarray(self._liars > 0)

    def _sums(self, each: Array) -> Array:
        count = max(1, min(self._plan.groups, len(each) // self._plan.least))
        return np.stack([each[group::count].sum(0) for group in range(count)])
