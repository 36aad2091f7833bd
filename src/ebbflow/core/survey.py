"""Questions about mixtures of models that the devices present answer with sums of scalars.

The server sends a few models, the *basis* b_1..b_K, once. From then on a question is a list of
mixing weights alpha in R^K, which add up to one and may be negative, and an answer is a few sums
over devices: of the loss at sum_k alpha_k b_k, and of its derivatives in alpha. Neither a model nor
the answer of a single device is ever uploaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.types import ModelState

Array = NDArray[np.float64]

Half = Literal["learn", "judge"]
"""The half of a device's sampled data that a question is about. Weights are learnt on one half and
compared on the other, because on the data they were learnt from they look better than they are."""

Compression = Literal["fp32", "bf16", "int8"]
"""How the basis is sent: whole, in bfloat16, or as 8-bit differences from its first model, which is
itself sent in bfloat16."""


class SurveyPlan(NamedTuple):
    """How devices are asked.

    Attributes:
        devices: The most devices that are asked; of more present, so many are drawn.
        samples: Samples in each half of a device's sample.
        groups: The groups of devices whose sums are formed separately.
        balance: How far labels are made to count alike, from 0 (as they come) to 1. The devices
            first add up how much their samples of each label count, and the server sends the sums
            to all of them; a sample then counts with the power -balance of its label's sum.
        compression: How the basis is sent.
        least: The fewest devices of a group. Where there are not enough devices for that, there are
            fewer groups, but at least one.
    """

    devices: int = 20
    samples: int = 32
    groups: int = 5
    balance: float = 0.5
    compression: Compression = "bf16"
    least: int = 2

    def groups_of(self, devices: int) -> int:
        """Return how many groups so many devices form.

        >>> [SurveyPlan().groups_of(devices) for devices in (1, 5, 20)]
        [1, 2, 5]
        """
        return max(1, min(self.groups, devices // self.least))


class LossSums(NamedTuple):
    """Sums over the devices of each of G groups, for A mixtures.

    ``weight [G]`` is what the samples of a group count together, ``loss [G, A]`` the weighted sum
    of their losses. ``products [A, A]`` is the sum over all groups of squared weight times the
    product of two mixtures' losses, from which standard errors of differences follow.
    """

    weight: Array
    loss: Array
    products: Array

    @property
    def means(self) -> Array:
        """The mean loss of each mixture over all groups, ``[A]``."""
        mean: Array = self.loss.sum(0) / self.weight.sum()
        return mean

    def error(self, one: int, other: int) -> float:
        """Return the standard error of the difference of two mixtures' mean losses.

        It treats the samples as drawn independently of each other.
        """
        q = self.products
        squares = q[one, one] + q[other, other] - 2 * q[one, other]
        return float(np.sqrt(max(squares, 0.0)) / self.weight.sum())


class Expansion(NamedTuple):
    """The loss to second order around a mixture, as sums over the devices of each group.

    ``weight [G]``, ``loss [G]``, ``slope [G, K]`` (the derivative in alpha) and ``curvature
    [G, K, K]`` (the Gauss-Newton matrix: exact where logits are linear in theta, and never
    negative).
    """

    weight: Array
    loss: Array
    slope: Array
    curvature: Array


class Panel(Protocol):
    """The devices that have been sent a basis, and answer questions about its mixtures.

    ``share`` is the part of the session's samples that they hold, from 0 to 1. ``noisy`` says
    whether noise was added to their answers, which is then part of the standard errors.
    """

    share: float
    noisy: bool

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        ...

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture."""
        ...


Survey = Callable[[Sequence[ModelState], SurveyPlan], Panel]
"""Sends a basis to devices of the session and returns them, ready to answer."""
