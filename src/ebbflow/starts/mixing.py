"""Find the mixing weights that the devices of a panel like best.

Weights alpha add up to one. The loss is minimised with a ridge that pulls towards the best simple
start, (rho/2) |alpha - alpha_0|^2, for a few values of rho; which of these mixtures and of the
simple starts is taken is decided on samples that none of them was learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ebbflow.core.survey import Array, Expansion, Panel

RIDGES = (0.1, 0.01, 0.001)
"""Values of rho, in nats per squared unit of alpha, from the most cautious one on."""
TOLERANCE = 1e-4  # a step that promises to lower the mean loss by less is not worth a question
STEPS = 12  # the most steps for one ridge
LARGEST_DAMPING = 1e4


def best_mixture(panel: Panel, size: int, finals: Sequence[int], margin: float = 0.0) -> Array:
    """Return the weights of the best start that the panel knows of.

    Args:
        panel: The devices that answer.
        size: K, the number of models in the basis.
        finals: The places of final models in the basis: their average is a simple start.
        margin: Standard errors within which the simplest is preferred to the best.
    """
    simple = list(np.eye(size))
    if len(finals) > 1:
        simple.append(np.eye(size)[list(finals)].mean(0))
    anchor = simple[int(panel.losses(simple, "learn").means.argmin())]
    fits: list[Fit] = []
    for ridge in RIDGES:
        begin = fits[-1].mixture if fits else anchor
        fits.append(minimise(panel, anchor, ridge, begin))
    return _judged(panel, simple, fits, margin)


class Fit(NamedTuple):
    """The minimum for one ridge, and the loss expanded around it."""

    mixture: Array
    around: Expansion
    anchor: Array
    ridge: float

    def without(self, group: int) -> Array:
        """Return the minimum without a group of devices, to first order (one Newton step)."""
        others = np.arange(len(self.around.weight)) != group
        rest = Expansion(*(sums[others] for sums in self.around))
        _, slope, curvature = _objective(rest, self.mixture - self.anchor, self.ridge)
        return self.mixture + newton_step(slope, curvature)


def minimise(panel: Panel, anchor: Array, ridge: float, begin: Array) -> Fit:
    """Minimise the ridged loss from ``begin`` by damped Newton steps, one question each."""
    mixture, damping = begin, 0.0
    around = panel.expansion(mixture)
    value, slope, curvature = _objective(around, mixture - anchor, ridge)
    for _ in range(STEPS):
        step = newton_step(slope, curvature, damping)
        promised = -slope @ step / 2
        if promised < TOLERANCE or damping > LARGEST_DAMPING:
            break
        there = panel.expansion(mixture + step)
        after = _objective(there, mixture + step - anchor, ridge)
        if after[0] < value:  # false where it is no number
            mixture, around, (value, slope, curvature) = mixture + step, there, after
            damping = 0.0 if damping < 0.1 else damping / 10
        else:
            damping = max(0.1, 10 * damping)
    return Fit(mixture, around, anchor, ridge)


def _objective(around: Expansion, moved: Array, ridge: float) -> tuple[float, Array, Array]:
    """Return the ridged mean loss, its slope and its curvature."""
    weight = around.weight.sum()
    return (
        float(around.loss.sum() / weight + ridge / 2 * moved @ moved),
        around.slope.sum(0) / weight + ridge * moved,
        around.curvature.sum(0) / weight + ridge * np.eye(len(moved)),
    )


def newton_step(slope: Array, curvature: Array, damping: float = 0.0) -> Array:
    """Return the step that minimises the quadratic, among those that leave the weights' sum alone.

    >>> newton_step(np.array([1.0, -1.0]), np.eye(2)).round(6).tolist()
    [-1.0, 1.0]
    """
    size = len(slope)
    damped = curvature + damping * np.trace(curvature) / size * np.eye(size)
    # The Lagrange conditions of sum(step) = 0.
    system = np.ones((size + 1, size + 1))
    system[:size, :size], system[size, size] = damped, 0
    step: Array = np.linalg.lstsq(system, np.append(-slope, 0), rcond=None)[0][:size]
    return step


def _judged(panel: Panel, simple: Sequence[Array], fits: Sequence[Fit], margin: float) -> Array:
    """Return the candidate with the least loss on the judging half, from the simplest on.

    Devices that were not asked hold the part 1 - share of the samples. How well a learnt mixture
    suits them is estimated by leaving groups of devices out: each group judges what the others
    have chosen. If the groups disagree, that is worse than what all have chosen together, and a
    simple start wins.
    """
    candidates = [*simple, *(fit.mixture for fit in fits)]
    unseen = 1 - panel.share
    groups = range(len(fits[0].around.weight)) if unseen > 0 else range(0)
    crossed = [fit.without(group) for fit in fits for group in groups]
    sums = panel.losses([*candidates, *crossed], "judge")
    losses = sums.means[: len(candidates)].copy()
    if len(groups) > 1:
        every = sums.loss[:, len(candidates) :].reshape(len(groups), len(fits), len(groups))
        by_others = np.einsum("gfg->f", every) / sums.weight.sum()
        losses[len(simple) :] = panel.share * losses[len(simple) :] + unseen * by_others
    best = int(losses.argmin())
    close = [
        place
        for place in range(len(candidates))
        if losses[place] <= losses[best] + margin * sums.error(place, best)
    ]
    return candidates[close[0]]
