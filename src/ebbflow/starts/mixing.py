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

from ebbflow.core.survey import Array, Expansion, Panel

RIDGES = (0.1, 0.01, 0.001)
"""Values of rho, in nats per squared unit of alpha, from the most cautious one on."""
TOLERANCE = 1e-3  # a step that promises to lower the mean loss by less is not worth a question
STEPS = 12  # the most steps for one ridge
LARGEST_DAMPING = 1e4
CLEARLY = 0.1  # nats by which a start must be worse for the user to be told


class Choice(NamedTuple):
    """The weights of a start, and whether the devices agree about it.

    ``disputed`` says that without the two most extreme groups of devices another candidate would
    have been taken, one that the chosen one is clearly worse than.
    """

    weights: Array
    disputed: bool = False


class Search(NamedTuple):
    """How weights are searched for.

    Attributes:
        margin: Standard errors within which the simplest start is preferred to the best.
        negative: Whether weights may be negative.
        trim: The share of groups that is left out of every mean, at either end: so many groups may
            answer anything at all.
    """

    margin: float = 0.0
    negative: bool = True
    trim: float = 0.0


USUAL = Search()


def best_mixture(panel: Panel, size: int, finals: Sequence[int], search: Search = USUAL) -> Choice:
    """Return the best start that the panel knows of.

    Args:
        panel: The devices that answer.
        size: K, the number of models in the basis.
        finals: The places of final models in the basis: their average is a simple start.
        search: How to search.
    """
    simple = list(np.eye(size))
    if len(finals) > 1:
        simple.append(np.eye(size)[list(finals)].mean(0))
    first = panel.losses(simple, "learn")
    anchor = simple[int(_numbers(over_groups(first.loss, first.weight, search.trim)).argmin())]
    fit = RidgeFit(anchor, panel.expansion(anchor, "learn"), anchor, RIDGES[0], search)
    fits = []
    for ridge in RIDGES:
        fit = minimise(panel, fit._replace(ridge=ridge))
        fits.append(fit)
    chosen, disputed = _judged(panel, simple, fits, search)
    if chosen < len(simple):
        return Choice(simple[chosen], disputed)
    fit = fits[chosen - len(simple)]
    refit = fit.with_more(panel.expansion(fit.mixture, "judge"))
    both = panel.losses([fit.mixture, refit], "judge")
    before, after = over_groups(both.loss, both.weight, search.trim)
    return Choice(refit if after <= before else fit.mixture, disputed)


def over_groups(sums: Array, weight: Array, trim: float) -> Array:
    """Return the mean over all samples, from the sums of each group ``[G, ...]``.

    With ``trim``, that share of the groups is left out at either end, entry by entry.

    >>> over_groups(np.array([2.0, 4.0, 90.0]), np.ones(3), 0.0)
    array(32.)
    >>> over_groups(np.array([2.0, 4.0, 90.0]), np.ones(3), 0.34)
    array(4.)
    """
    cut = min(int(trim * len(weight) + 1e-9), (len(weight) - 1) // 2)
    if cut == 0:
        return np.asarray(sums.sum(0) / weight.sum())
    shape = (-1,) + (1,) * (sums.ndim - 1)
    means = sums / weight.reshape(shape)
    order = np.argsort(means, axis=0)[cut:-cut]
    kept = np.take_along_axis(np.broadcast_to(weight.reshape(shape), sums.shape), order, 0)
    return np.asarray(np.take_along_axis(sums, order, 0).sum(0) / kept.sum(0))


class RidgeFit(NamedTuple):
    """A mixture on the way to the minimum for one ridge, and the loss expanded around it."""

    mixture: Array
    around: Expansion
    anchor: Array
    ridge: float
    search: Search = USUAL

    def objective(self, around: Expansion | None = None) -> tuple[float, Array, Array]:
        """Return the ridged mean loss, its slope and its curvature; by default those around it."""
        around, trim = around or self.around, self.search.trim
        moved = self.mixture - self.anchor
        return (
            float(over_groups(around.loss, around.weight, trim) + self.ridge / 2 * moved @ moved),
            over_groups(around.slope, around.weight, trim) + self.ridge * moved,
            over_groups(around.curvature, around.weight, trim) + self.ridge * np.eye(len(moved)),
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


def _judged(
    panel: Panel, simple: Sequence[Array], fits: Sequence[RidgeFit], search: Search
) -> tuple[int, bool]:
    """Return the place of the candidate with the least loss on the judging half.

    Candidates are the simple starts, then the learnt mixtures from the most cautious one on.
    Devices that were not asked hold the part 1 - share of the samples. How well a learnt mixture
    suits them is estimated by leaving groups of devices out: each group judges what the others
    have chosen. If the groups disagree, that is worse than what all have chosen together, and a
    simple start wins. The second value is `Choice.disputed`.
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
    losses = _numbers(losses)
    means = over_groups(losses, sums.weight, search.trim)
    best = int(means.argmin())
    chosen = next(
        place
        for place in range(count)
        if means[place] <= means[best] + search.margin * sums.error(place, best)
    )
    # Would the groups have chosen otherwise without the most extreme ones?
    trimmed = over_groups(losses, sums.weight, max(search.trim, 1 / len(groups)))
    return chosen, bool(trimmed[chosen] - trimmed.min() > CLEARLY)


def _numbers(losses: Array) -> Array:
    """Return losses with infinity for those that are no number, which are never the least."""
    return np.nan_to_num(losses, nan=np.inf, posinf=np.inf)
