"""Theorem 1's bound on the average squared gradient norm: as printed, and corrected.

Both bound (1/ST) sum_s sum_t E||grad F^(s)(w^(s,t))||^2 by four terms: (a) the descent, (b) the
sampling noise, (c) the noise in the local drift, and (d) the dissimilarity of the devices. They
assume full participation, plain SGD without momentum, the same number e of local steps on every
device, and mini-batches that are drawn afresh in every step. `printed_terms` is the paper's
formula, symbol by symbol; its proof has gaps, and for many local steps it is false.
`corrected_terms` is proven in ``docs/theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError

Array = NDArray[np.float64]
"""One number per device."""


class Constants(NamedTuple):
    """The constants of the assumptions.

    ``beta`` bounds the smoothness of every F_k; ``theta`` (Theta) bounds how much the gradient of a
    sample changes with its features; zeta_1 >= 1 and zeta_2 bound the dissimilarity of the devices.
    """

    beta: float
    theta: float
    zeta_1: float
    zeta_2: float


@dataclass(frozen=True)
class Devices:
    """The devices of a session: D_k, B_k and the feature dispersions sigma~_k^2, all ``[K]``.

    ``variance`` is E||delta_k||^2, the mean squared error of a mini-batch's gradient, if it was
    measured; otherwise it is bounded through Theta and the dispersion.
    """

    samples: Array
    batch: Array
    dispersion: Array
    variance: Array | None = None

    def __post_init__(self) -> None:
        """Refuse what Assumption 5 excludes, except D_k = 1, where there is no noise."""
        for k, (samples, batch) in enumerate(zip(self.samples, self.batch, strict=True)):
            if not 1 <= batch <= samples:
                raise EbbflowError(
                    f"device {k} has D_k = {samples:g} samples and B_k = {batch:g}: the theorem "
                    "needs 1 <= B_k <= D_k; lower B_k or leave the device out"
                )

    @property
    def shares(self) -> Array:
        """p_k = D_k / D."""
        return np.asarray(self.samples / self.samples.sum())


class TheoremRound(NamedTuple):
    """One round: eta^(s,t), e^(s,t), E[F(w^(s,t)) - F(w^(s,t+1))], and the devices."""

    eta: float
    steps: int
    descent: float
    devices: Devices


class Terms(NamedTuple):
    """The four terms of a bound."""

    descent: float
    noise: float
    noise_drift: float
    dissimilarity: float

    @property
    def total(self) -> float:
        """The bound itself."""
        return sum(self)

    @property
    def shares(self) -> tuple[float, ...]:
        """Each term over the sum of their magnitudes, with its sign.

        >>> Terms(2.0, 1.0, 1.0, 0.0).shares
        (0.5, 0.25, 0.25, 0.0)
        """
        whole = sum(abs(term) for term in self) or 1.0
        return tuple(term / whole for term in self)


LETTERS = ("a", "b", "c", "d")
MEANINGS = ("descent", "sampling noise", "noise in the drift", "dissimilarity")


def mean_terms(terms: Sequence[Terms]) -> Terms:
    """Return the mean of each term, over rounds or over seeds.

    >>> mean_terms([Terms(1, 0, 0, 0), Terms(3, 2, 0, 0)])
    Terms(descent=2.0, noise=1.0, noise_drift=0.0, dissimilarity=0.0)
    """
    return Terms(*(math.fsum(values) / len(terms) for values in zip(*terms, strict=True)))


def batch_variance(devices: Devices, theta: float) -> Array:
    """Return nu_k >= E||delta_k||^2, the mean squared error of a mini-batch's gradient.

    (1 - B_k/D_k) sigma_k^2 / B_k for sampling without replacement, with the sample variance of the
    gradients sigma_k^2 <= Theta^2 sigma~_k^2 / (D_k - 1). The paper has 2/D_k for 1/(D_k - 1).

    >>> two = Devices(np.array([2.0, 4.0]), np.array([1.0, 4.0]), np.array([8.0, 8.0]))
    >>> [float(nu) for nu in batch_variance(two, theta=0.5)]
    [1.0, 0.0]
    """
    if devices.variance is not None:
        return devices.variance
    n, b = devices.samples, devices.batch
    return (1 - b / n) / b * theta**2 * devices.dispersion / np.maximum(n - 1, 1)


# --- as printed ----------------------------------------------------------------------------------


def printed_slack(eta: float, steps: int, beta: float, zeta_1: float) -> float:
    """Return the least Lambda that meets the printed condition; 1 or more if none below 1 does.

    The condition is eta <= sqrt(Lambda) / (2 beta sqrt((zeta_1 + Lambda) e (e - 1))). With a single
    step there is none.

    >>> printed_slack(eta=0.1, steps=1, beta=100.0, zeta_1=1.0)
    0.0
    >>> round(printed_slack(eta=0.125, steps=2, beta=1.0, zeta_1=1.0), 4)
    0.1429
    """
    used = 4 * (beta * eta) ** 2 * steps * (steps - 1)
    return used * zeta_1 / (1 - used) if used < 1 else math.inf


def printed_rate(steps: int, beta: float, zeta_1: float) -> float:
    """Return the rate below which the printed condition holds for some Lambda < 1.

    >>> printed_rate(steps=2, beta=1.0, zeta_1=1.0)
    0.25
    """
    if steps == 1:
        return math.inf
    return 1 / (2 * beta * math.sqrt((zeta_1 + 1) * steps * (steps - 1)))


def printed_terms(this: TheoremRound, of: Constants, slack: float | None = None) -> Terms:
    """Return terms (a) to (d) of Theorem 1 for one round, as printed.

    At e = 1 and Lambda = 0 this is the single-step form.

    Args:
        this: The round.
        of: The constants of the assumptions.
        slack: Lambda; by default the least that the printed condition allows.
    """
    eta, e, devices = this.eta, this.steps, this.devices
    slack = printed_slack(eta, e, of.beta, of.zeta_1) if slack is None else slack
    rest = _rest(slack, eta, printed_rate(e, of.beta, of.zeta_1))
    # The printed Theta^2 sigma~_k^2 (1 - B_k/D_k)/B_k; each term divides it differently by D_k.
    n, b = devices.samples, devices.batch
    if devices.variance is None:
        spread = of.theta**2 * devices.dispersion * (1 - b / n) / b
    else:
        spread = devices.variance * (n - 1)
    return Terms(
        2 * this.descent / (eta * rest),
        4 * of.beta * eta * e / rest * float((spread / n).sum()),
        4 * (of.beta * eta) ** 2 * (e - 1) / rest * float(spread.sum() / n.sum()),
        8 * (of.beta * eta) ** 2 * e * (e - 1) * of.zeta_2 / rest,
    )


# --- corrected -----------------------------------------------------------------------------------


def corrected_slack(eta: float, steps: int, beta: float, zeta_1: float) -> float:
    """Return the least Lambda of the corrected theorem; infinity where it does not apply.

    Lambda = (9/16) beta^2 eta^2 (e - 1)(2e - 1) zeta_1, provided that beta eta e <= 1/2. With a
    single step beta eta <= 1 is enough, and Lambda = 0. For e >= 2 the printed condition implies
    this one.

    >>> corrected_slack(eta=1.0, steps=1, beta=1.0, zeta_1=5.0)
    0.0
    >>> corrected_slack(eta=0.25, steps=2, beta=1.0, zeta_1=1.0)
    0.10546875
    """
    if beta * eta * steps > (1 if steps == 1 else 0.5):
        return math.inf
    return 9 / 16 * (beta * eta) ** 2 * (steps - 1) * (2 * steps - 1) * zeta_1


def corrected_rate(steps: int, beta: float, zeta_1: float) -> float:
    """Return the rate below which the corrected theorem applies.

    >>> corrected_rate(steps=5, beta=1.0, zeta_1=1.0)
    0.1
    """
    if steps == 1:
        return 1 / beta
    drift = 4 / (3 * beta * math.sqrt(zeta_1 * (steps - 1) * (2 * steps - 1)))
    return min(1 / (2 * beta * steps), drift)


def corrected_terms(this: TheoremRound, of: Constants, slack: float | None = None) -> Terms:
    """Return the four terms of the corrected bound for one round (derived in docs/theory.md).

    (a) 2 E[F(w^t) - F(w^(t+1))] / (eta e (1 - Lambda))
    (b) 2 beta eta sum_k p_k^2 nu_k / (1 - Lambda)
    (c) (7/4) beta^2 eta^2 (e - 1) sum_k p_k nu_k / (1 - Lambda)
    (d) (9/16) beta^2 eta^2 (e - 1)(2e - 1) zeta_2 / (1 - Lambda)

    with nu_k of `batch_variance`; at e = 1 the factor 2 of (b) is 1.

    Args:
        this: The round.
        of: The constants of the assumptions.
        slack: Lambda; by default the least that the condition allows.
    """
    eta, e, devices = this.eta, this.steps, this.devices
    slack = corrected_slack(eta, e, of.beta, of.zeta_1) if slack is None else slack
    rest = _rest(slack, eta, corrected_rate(e, of.beta, of.zeta_1))
    nu, p = batch_variance(devices, of.theta), devices.shares
    moved = of.beta * eta
    return Terms(
        2 * this.descent / (eta * e * rest),
        (1 if e == 1 else 2) * moved * float((p**2 * nu).sum()) / rest,
        7 / 4 * moved**2 * (e - 1) * float((p * nu).sum()) / rest,
        9 / 16 * moved**2 * (e - 1) * (2 * e - 1) * of.zeta_2 / rest,
    )


def _rest(slack: float, eta: float, rate: float) -> float:
    """Return 1 - Lambda."""
    if not 0 <= slack < 1:
        raise EbbflowError(
            f"eta = {eta:g} gives no bound: the theorem's condition needs eta below {rate:g}; "
            "lower lr.initial or local.steps"
        )
    return 1 - slack
