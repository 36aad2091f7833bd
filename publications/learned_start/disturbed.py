"""Devices that answer wrongly, in three ways.

A wrong answer stays within the range of the honest ones, as a protocol with range proofs would
enforce: at a model of the basis it is no larger than the largest honest answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.rng import generator
from ebbflow.core.start import Situation, StartingPoint
from ebbflow.core.survey import Array, Expansion, Half, LossSums, Panel, SurveyPlan
from ebbflow.core.types import ModelState

Attack = Literal["random", "adversarial", "consistent"]
ATTACKS: tuple[Attack, ...] = get_args(Attack)
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

    It asks every device alone, replaces some of the answers, and then forms the sums of groups.
    """

    noisy = False

    def __init__(self, single: Panel, plan: SurveyPlan, attack: Attack, session: int) -> None:
        self.share = single.share
        self._single, self._plan = single, plan
        self._draw = generator("disturbed", attack, session)
        self._liar = _LIARS[attack](self._draw)
        self._liars: NDArray[np.bool_] | None = None

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses, some of them wrong."""
        weight, loss, products = self._single.losses(mixtures, half)
        means = loss / weight[:, None]
        liars = self._who(len(weight))
        means[liars] = self._liar.losses(mixtures, means[liars], means[~liars])
        return LossSums(self._sums(weight), self._sums(means * weight[:, None]), products)

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss expanded around a mixture, where some answers are wrong."""
        weight, loss, slope, curvature = self._single.expansion(mixture, half)
        liars = self._who(len(weight))
        each = weight[:, None]
        means = loss / weight, slope / each, curvature / each[:, :, None]
        said = self._liar.expansion(
            mixture, [kind[liars] for kind in means], [kind[~liars] for kind in means]
        )
        for kind, wrong in zip(means, said, strict=True):
            kind[liars] = wrong
        loss, slope, curvature = means
        return Expansion(
            self._sums(weight),
            self._sums(loss * weight),
            self._sums(slope * each),
            self._sums(curvature * each[:, :, None]),
        )

    def _who(self, devices: int) -> NDArray[np.bool_]:
        """Return which devices answer wrongly: always the same."""
        if self._liars is None:
            count = min(devices - 1, int(np.ceil(SHARE * devices - 1e-9)))
            self._liars = np.asarray(self._draw.permutation(devices) < count)
        return self._liars

    def _sums(self, each: Array) -> Array:
        count = self._plan.groups_of(len(each))
        return np.stack([each[group::count].sum(0) for group in range(count)])


class _Liar(Protocol):
    """What wrong devices say, given what they and the honest ones would have said."""

    def losses(self, mixtures: Sequence[Array], own: Array, honest: Array) -> Array:
        """Return mean losses, ``[devices, mixtures]``."""
        ...

    def expansion(
        self, mixture: Array, own: Sequence[Array], honest: Sequence[Array]
    ) -> Sequence[Array]:
        """Return mean losses, slopes and curvatures."""
        ...


class _Random:
    """Random numbers within the range of the honest answers."""

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw

    def losses(self, mixtures: Sequence[Array], own: Array, honest: Array) -> Array:
        return np.asarray(self._draw.random(own.shape) * honest.max())

    def expansion(
        self, mixture: Array, own: Sequence[Array], honest: Sequence[Array]
    ) -> Sequence[Array]:
        count = len(own[0])
        return (
            self._draw.random(count) * honest[0].max(),
            (2 * self._draw.random(own[1].shape) - 1) * np.abs(honest[1]).max(),
            self._draw.permutation(honest[2])[:count],
        )


class _Adversarial:
    """Good mixtures are called bad; slopes lead uphill, and no curvature would stop it."""

    def __init__(self, draw: np.random.Generator) -> None:
        pass

    def losses(self, mixtures: Sequence[Array], own: Array, honest: Array) -> Array:
        means = honest.mean(0)
        return np.asarray(np.minimum(2 * (means.max() + means.min() - means), honest.max()))

    def expansion(
        self, mixture: Array, own: Sequence[Array], honest: Sequence[Array]
    ) -> Sequence[Array]:
        uphill = -np.sign(honest[1].mean(0)) * np.abs(honest[1]).max()
        return np.asarray(honest[0].mean()), uphill, np.zeros_like(own[2])


class _Consistent:
    """The squared distance from the model that suits the others least, with all its derivatives.

    It is large enough to be as loud as the loudest honest device at the models of the basis.
    """

    def __init__(self, draw: np.random.Generator) -> None:
        self._favourite, self._scale = np.zeros(0), 0.0

    def losses(self, mixtures: Sequence[Array], own: Array, honest: Array) -> Array:
        if not self._scale:  # the first question is about the basis itself
            size = len(mixtures[0])
            self._favourite = np.eye(size)[honest[:, :size].mean(0).argmax()]
            self._scale = float(honest[:, :size].max())
        away = np.stack(mixtures) - self._favourite
        return np.asarray(self._scale / 2 * (away**2).sum(1))

    def expansion(
        self, mixture: Array, own: Sequence[Array], honest: Sequence[Array]
    ) -> Sequence[Array]:
        loss = self.losses([mixture], own[0], honest[0])
        return loss, self._scale * (mixture - self._favourite), self._scale * np.eye(len(mixture))


_LIARS: dict[Attack, Callable[[np.random.Generator], _Liar]] = {
    "random": _Random,
    "adversarial": _Adversarial,
    "consistent": _Consistent,
}
