"""Find the mixing weights that the devices of a panel like best.

Weights alpha add up to one. The loss is minimised with a ridge that pulls towards the best simple
start, (rho/2) |alpha - alpha_0|^2, for a few values of rho; which of these mixtures and of the
simple starts is taken is decided on samples that none of them was learnt from. If it is a mixture,
its weights are learnt once more from all samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ebbflow.core.survey import Array, Expansion, LossSums, Panel

RIDGES = (0.1, 0.01, 0.001)
"""Values of rho, in nats per squared unit of alpha, from the most cautious one on."""
TOLERANCE = 1e-3  # a step that promises to lower the mean loss by less is not worth a question
STEPS = 12  # the most steps for one ridge
LARGEST_DAMPING = 1e4


class Search(NamedTuple):
    """How weights are searched for.

    Attributes:
        margin: Standard errors within which the simplest start is preferred to the best.
        negative: Whether weights may be negative.
    """

    margin: float = 0.0
    negative: bool = True


USUAL = Search()


def best_mixture(
    panel: Panel,
    size: int,
    finals: Sequence[int],
    search: Search = USUAL,
    fresh: int | None = None,
) -> Array:
    """Return the weights of the best start that the panel knows of.

    Args:
        panel: The devices that answer.
        size: K, the number of models in the basis.
        finals: The places of final models in the basis: their average is a simple start.
        search: How to search.
        fresh: The place of the initial model in the basis, if it is there. Where it is the best
            simple start, the past has nothing to offer, and no mixture is tried: its loss would be
            lower, but training would first have to undo what it is made of.
    """
    simple = list(np.eye(size))
    if len(finals) > 1:
        simple.append(np.eye(size)[list(finals)].mean(0))
    first = panel.losses(simple, "learn")
    means = _numbers(first.means)
    best = _preferred(means, first, search.margin)
    anchor = simple[best]
    if best == fresh or np.isinf(means[best]):  # or nobody has answered with a number
        return anchor
    fit = RidgeFit(anchor, panel.expansion(anchor, "learn"), anchor, RIDGES[0], search)
    fits = []
    for ridge in RIDGES:
        fit = minimise(panel, fit._replace(ridge=ridge))
        fits.append(fit)
    chosen = _judged(panel, simple, fits, search.margin)
    if chosen < len(simple):
        return simple[chosen]
    fit = fits[chosen - len(simple)]
    refit = fit.with_more(panel.expansion(fit.mixture, "judge"))
    before, after = panel.losses([fit.mixture, refit], "judge").means
    return refit if after <= before else fit.mixture


class RidgeFit(NamedTuple):
    """A mixture on the way to the minimum for one ridge, and the loss expanded around it."""

    mixture: Array
    around: Expansion
    anchor: Array
    ridge: float
    search: Search = USUAL

    def objective(self, around: Expansion | None = None) -> tuple[float, Array, Array]:
        """Return the ridged mean loss, its slope and its curvature; by default those around it."""
        weight, *sums = around or self.around
        loss, slope, curvature = (each.sum(0) / weight.sum() for each in sums)
        moved = self.mixture - self.anchor
        return (
            float(loss + self.ridge / 2 * moved @ moved),
            slope + self.ridge * moved,
            curvature + self.ridge * np.eye(len(moved)),
        )

    def step(self, around: Expansion | None = None, damping: float = 0.0) -> Array:
        """Return the Newton step from here."""
        _, slope, curvature = self.objective(around)
        least = None if self.search.negative else -self.mixture
        return newton_step(slope, curvature, damping, least)

    def without(self, group: int) -> Array:
        """Return the minimum without a group of devices, to first order."""
        others = np.arange(len(self.around.weight)) != group
        return self.mixture + self.step(Expansion(*(sums[others] for sums in self.around)))

    def with_more(self, more: Expansion) -> Array:
        """Return the minimum over these samples and more, to first order.

        How much caution is needed is settled by now, so the weights may be learnt from all samples.
        """
        both = Expansion(*(one + other for one, other in zip(self.around, more, strict=True)))
        step = self.step(both)
        # No further than from the anchor to here: a network's loss is no quadratic far away.
        length, most = (float(np.linalg.norm(v)) for v in (step, self.mixture - self.anchor))
        return self.mixture + step * (min(1.0, most / length) if length else 1.0)


def minimise(panel: Panel, begin: RidgeFit) -> RidgeFit:
    """Minimise the ridged loss on the learning half by damped Newton steps, one question each."""
    fit, damping = begin, 0.0
    for _ in range(STEPS):
        value, slope, _ = fit.objective()
        step = fit.step(damping=damping)
        if -slope @ step / 2 < TOLERANCE or damping > LARGEST_DAMPING:
            break
        there = fit.mixture + step
        trial = fit._replace(mixture=there, around=panel.expansion(there, "learn"))
        if trial.objective()[0] < value:  # false where it is no number
            fit, damping = trial, 0.0 if damping < 0.1 else damping / 10
        else:
            damping = max(0.1, 10 * damping)
    return fit


def newton_step(
    slope: Array, curvature: Array, damping: float = 0.0, least: Array | None = None
) -> Array:
    """Return the step that minimises the quadratic, among those that leave the weights' sum alone.

    No entry falls below ``least``, where that is given (zero or less): entries that would are held
    there, one after another, the furthest first.

    >>> newton_step(np.array([1.0, -1.0]), np.eye(2)).round(6).tolist()
    [-1.0, 1.0]
    >>> newton_step(np.array([1.0, -1.0]), np.eye(2), least=np.array([-0.5, 0])).round(6).tolist()
    [-0.5, 0.5]
    """
    size = len(slope)
    damped = curvature + damping * np.trace(curvature) / size * np.eye(size)
    step = np.zeros(size)
    free = np.ones(size, dtype=bool)
    while free.any():
        step[free] = _free_step(
            slope[free] + damped[np.ix_(free, ~free)] @ step[~free],
            damped[np.ix_(free, free)],
            -step[~free].sum(),
        )
        if least is None or (step >= least - 1e-12).all():
            break
        worst = int(np.where(free, step - least, np.inf).argmin())
        step[worst], free[worst] = least[worst], False
    return step


def _free_step(slope: Array, curvature: Array, total: float) -> Array:
    """Return the minimum of the quadratic over steps that add up to ``total``."""
    size = len(slope)
    # The Lagrange conditions; the least of several solutions where the curvature is singular.
    system = np.ones((size + 1, size + 1))
    system[:size, :size], system[size, size] = curvature, 0
    step: Array = np.linalg.lstsq(system, np.append(-slope, total), rcond=None)[0][:size]
    return step


def _judged(panel: Panel, simple: Sequence[Array], fits: Sequence[RidgeFit], margin: float) -> int:
    """Return the place of the candidate with the least loss on the judging half.

    Candidates are the simple starts, then the learnt mixtures from the most cautious one on.
    Devices that were not asked hold the part 1 - share of the samples. How well a learnt mixture
    suits them is estimated by leaving groups of devices out: each group judges what the others
    have chosen. If the groups disagree, that is worse than what all have chosen together, and a
    simple start wins.
    """
    candidates = [*simple, *(fit.mixture for fit in fits)]
    count, unseen = len(candidates), 1 - panel.share
    groups = range(len(fits[0].around.weight))
    crossed = [fit.without(g) for fit in fits for g in groups] if unseen and len(groups) > 1 else []
    sums = panel.losses([*candidates, *crossed], "judge")
    losses = sums.loss[:, :count].copy()
    if crossed:
        every = sums.loss[:, count:].reshape(len(groups), len(fits), len(groups))
        by_others = np.einsum("gfg->gf", every)
        losses[:, len(simple) :] *= panel.share
        losses[:, len(simple) :] += unseen * by_others
    means = _numbers(losses.sum(0) / sums.weight.sum())
    return _preferred(means, sums, margin)


def _preferred(means: Array, sums: LossSums, margin: float) -> int:
    """Return the first candidate whose loss is within so many standard errors of the least."""
    best = int(means.argmin())
    return next(
        place
        for place in range(len(means))
        if place == best or means[place] <= means[best] + margin * sums.error(place, best)
    )


def _numbers(losses: Array) -> Array:
    """Return losses with infinity for those that are no number, which are never the least."""
    return np.nan_to_num(losses, nan=np.inf, posinf=np.inf)
