"""What devices add to the answers of a survey, and how the answers of a group are added up.

A real device computes its summands from its own samples. A simulation may put the samples of many
devices together, which gives the same sums up to rounding, or keep them apart, which gives the very
bits that real devices send.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.mixtures import Basis, expanded, sample_losses
from ebbflow.core.rng import generator
from ebbflow.core.survey import Array, Expansion, Half, LossSums
from ebbflow.core.types import Indices


class AskedSample(NamedTuple):
    """Samples that are asked about together, and what each of them counts.

    ``basis`` and ``x`` are in the form in which questions are cheapest (`SentModels.for_samples`).
    """

    basis: Basis
    x: Tensor
    y: Tensor
    weights: Tensor

    def losses(self, mixtures: Sequence[Array]) -> LossSums:
        """Return the sums of the losses at several mixtures, as those of a single group."""
        stacked = torch.from_numpy(np.stack(mixtures)).to(self.basis.thetas)
        each = sample_losses(self.basis, stacked, self.x, self.y).double() * self.weights
        # Losses that are no numbers are left out here; the errors of others must not be lost.
        products = np.nan_to_num((each @ each.T).cpu().numpy(), posinf=0.0)
        return LossSums(self._weight, each.sum(1).cpu().numpy()[None], products)

    def expansion(self, mixture: Array) -> Expansion:
        """Return the loss, expanded around a mixture, as that of a single group."""
        alpha = torch.from_numpy(mixture).to(self.basis.thetas)
        sums = expanded(self.basis, alpha, self.x, self.y, self.weights)
        return Expansion(self._weight, *(each.numpy()[None] for each in sums))

    @property
    def _weight(self) -> Array:
        return np.array([float(self.weights.sum())])


def sampled_rows(
    seed: int, session: int, device: int, count: int, samples: int
) -> dict[Half, Indices]:
    """Draw which of a device's samples it is asked about: two halves of at most ``samples`` each.

    The result are places among the device's own samples. A device with a single sample has to use
    it for both halves.
    """
    draw = generator(seed, "survey", session, device)
    rows = draw.permutation(count)[: 2 * samples]
    middle = max(1, len(rows) // 2)
    return {"learn": rows[:middle], "judge": rows[middle:] if len(rows) > 1 else rows}


def members_of_groups(
    seed: int, session: int, devices: Sequence[int], count: int
) -> list[list[int]]:
    """Divide devices into groups at random."""
    order = generator(seed, "survey-groups", session).permutation(len(devices))
    return [[devices[place] for place in order[g::count]] for g in range(count)]


def label_factors(counts: Array, balance: float) -> Array:
    """Return the factor by which the samples of each label count, from what all count together.

    A factor is the sum of a label that all would have if they were equal, over its own, to the
    power of ``balance``: with 1, all labels count alike.

    >>> label_factors(np.array([3.0, 1.0, 0.0]), 1.0).round(3).tolist()
    [0.667, 2.0, 0.0]
    """
    present = counts > 0
    ratios = counts.sum() / (present.sum() * np.maximum(counts, 1e-300))
    return np.where(present, ratios**balance, 0.0)


def added_losses(groups: Iterable[Iterable[LossSums]]) -> LossSums:
    """Add up the answers within each group, in their order."""
    added = [_added(list(answers)) for answers in groups]
    weight, loss = (np.concatenate([sums[k] for sums in added]) for k in (0, 1))
    products = np.zeros_like(added[0][2])
    for sums in added:
        products += sums[2]
    return LossSums(weight, loss, products)


def added_expansions(groups: Iterable[Iterable[Expansion]]) -> Expansion:
    """Add up the answers within each group, in their order."""
    added = [_added(list(answers)) for answers in groups]
    return Expansion(*(np.concatenate(each) for each in zip(*added, strict=True)))


def _added(answers: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return the sums of several answers, number by number."""
    total = answers[0]
    for more in answers[1:]:
        total = tuple(one + other for one, other in zip(total, more, strict=True))
    return tuple(total)
