"""Leave out past models that cannot have been trained here.

Training keeps something of the model that it begins with. So a past model nearly always has much
in common with the models that the server made itself: the initial one, the pilot, and the
carried-over one. One that has next to nothing in common with them, and that the devices here find
no better than the initial model, is a stranger: a vector from elsewhere, in the place of a model.
Mixtures may seem to gain from a stranger, as from any random direction, but what it leaves behind
where no sample has a say is never unlearnt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.survey import Array, Expansion, Half, LossSums, Panel
from ebbflow.core.types import ModelState

STRANGE = 0.1
"""The share of a model's squared length below which the server's own models do not explain it."""
PIECE = 2**16
"""Entries of all vectors that are multiplied at a time: a copy in double precision fits a cache."""


def without_strangers(
    panel: Panel, basis: Sequence[ModelState], own: Sequence[ModelState], fresh: int | None
) -> list[int]:
    """Return the places of the models in a basis that are no strangers.

    The devices are asked only if a model is unlike the server's own ones. ``fresh`` is the place of
    the initial model; without it nobody can tell.
    """
    shares = explained_shares([model.theta for model in basis], [model.theta for model in own])
    unlike = [k for k, share in enumerate(shares) if share < STRANGE]
    places = range(len(basis))
    if not unlike or fresh is None:
        return list(places)
    losses = panel.losses(list(np.eye(len(basis))), "learn").means
    worth = losses < losses[fresh]  # false where it is no number
    return [k for k in places if k not in unlike or worth[k]]


def explained(theta: Tensor, own: Sequence[Tensor]) -> float:
    """Return the share of a vector's squared length that lies in the span of some others.

    A vector that is not finite has nothing in common with any.

    >>> from torch import tensor, zeros
    >>> round(explained(tensor([3.0, 4.0]), [tensor([2.0, 0.0]), zeros(2)]), 6)
    0.36
    """
    return explained_shares([theta], own)[0]


def explained_shares(thetas: Sequence[Tensor], own: Sequence[Tensor]) -> list[float]:
    """Return the same for several vectors.

    Of inner products alone, each piece of all vectors read once: models may be large.
    """
    products = inner_products([*own, *thetas])
    lengths = products.diagonal()
    has_length = np.isfinite(lengths[: len(own)]) & (lengths[: len(own)] > 0)
    others = np.flatnonzero(has_length)
    # At unit length, so that a huge model does not hide the direction of a small one.
    units = np.sqrt(lengths[others])
    among = products[np.ix_(others, others)] / np.outer(units, units)
    shares = []
    for k in range(len(own), len(products)):
        if not np.isfinite(lengths[k]):
            shares.append(0.0)
            continue
        along = products[others, k] / units
        inside = along @ np.linalg.lstsq(among, along, rcond=1e-6)[0] if len(others) else 0.0
        shares.append(float(inside / lengths[k]) if lengths[k] else 1.0)
    return shares


def inner_products(vectors: Sequence[Tensor]) -> Array:
    """Return the inner products of all pairs of some vectors.

    In double precision, where the square of no float32 is infinite: models may have diverged.
    """
    products = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for pieces in zip(*(torch.split(vector, PIECE) for vector in vectors), strict=True):
        rows = torch.stack(pieces).double()
        products += (rows @ rows.T).cpu()
    found: Array = products.numpy()
    return found


class PartOfBasis:
    """A panel that is asked about mixtures of some models of its basis only."""

    def __init__(self, panel: Panel, places: Sequence[int], size: int) -> None:
        self.share, self.noisy = panel.share, panel.noisy
        self._panel, self._places, self._size = panel, list(places), size

    def whole(self, mixture: Array) -> Array:
        """Return the weights of all models of the basis."""
        weights = np.zeros(self._size)
        weights[self._places] = mixture
        return weights

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        return self._panel.losses([self.whole(mixture) for mixture in mixtures], half)

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture, in the weights of these models."""
        around = self._panel.expansion(self.whole(mixture), half)
        here = self._places
        if len(here) == self._size:
            return around
        slope, curvature = around.slope[:, here], around.curvature[:, here][:, :, here]
        return around._replace(slope=slope, curvature=curvature)
