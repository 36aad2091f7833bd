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
from torch import Tensor

from ebbflow.core.survey import Array, Expansion, Half, LossSums, Panel
from ebbflow.core.types import ModelState

STRANGE = 0.1
"""The share of a model's squared length below which the server's own models do not explain it."""


def without_strangers(
    panel: Panel, basis: Sequence[ModelState], own: Sequence[ModelState], fresh: int | None
) -> list[int]:
    """Return the places of the models in a basis that are no strangers.

    The devices are asked only if a model is unlike the server's own ones. ``fresh`` is the place of
    the initial model; without it nobody can tell.
    """
    thetas = [model.theta for model in own]
    unlike = [k for k, model in enumerate(basis) if explained(model.theta, thetas) < STRANGE]
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
    # In double precision, where the square of no float32 is infinite: models may have diverged.
    vector = theta.double()
    length = float(vector @ vector)
    if not np.isfinite(length):
        return 0.0
    # At unit length, so that a huge model does not hide the direction of a small one.
    others = [one.double() / one.double().norm() for one in own if _has_length(one)]
    # Of inner products alone: models may be large.
    products = np.array([[float(one @ other) for other in others] for one in others])
    along = np.array([float(one @ vector) for one in others])
    inside = along @ np.linalg.lstsq(products, along, rcond=1e-6)[0] if others else 0.0
    return float(inside) / length if length else 1.0


def _has_length(vector: Tensor) -> bool:
    """Whether a vector points anywhere: it is finite, and not zero."""
    return 0 < float(vector.abs().max()) < float("inf")


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
