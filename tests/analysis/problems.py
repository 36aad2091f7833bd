"""Federated problems whose constants are exact, and many repetitions of training on them at once.

Each has samples ``x [K, D, M]`` of which device k owns the first D_k, a separable or quadratic
loss f(w, x), and the constants of the assumptions for the weights p_k = D_k/D, which are the only
ones that the proof uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from ebbflow.analysis.bound import Constants, Devices, TheoremRound

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A session's devices and their loss.

    ``slopes(w [R, K, M])`` are the gradients of all samples at the devices' own models,
    ``[R, K, D, M]``; ``loss(w [R, M])`` is F, ``[R]``; ``low`` and ``high`` bound the cube W on
    which the constants hold.
    """

    x: Array
    devices: Devices
    constants: Constants
    slopes: Callable[[Array], Array]
    loss: Callable[[Array], Array]
    low: float = -np.inf
    high: float = np.inf

    @property
    def owned(self) -> NDArray[np.bool_]:
        return np.arange(self.x.shape[1]) < self.devices.samples[:, None]

    def gradients(self, w: Array) -> Array:
        """Return grad F_k at a model of each repetition, ``[R, K, M]``."""
        everywhere = np.repeat(w[:, None], len(self.x), axis=1)
        weights = self.owned / self.devices.samples[:, None]
        found: Array = np.einsum("rkdm,kd->rkm", self.slopes(everywhere), weights)
        return found

    def gradient(self, w: Array) -> Array:
        """Return grad F at a model of each repetition, ``[R, M]``."""
        found: Array = np.einsum("rkm,k->rm", self.gradients(w), self.devices.shares)
        return found


@dataclass(frozen=True)
class Trained:
    """What ``R`` repetitions of a session gave, each ``[T, R]``, and its rounds."""

    squares: Array
    descents: Array
    projected: int
    w: Array

    def rounds(self, eta: float, steps: int, problem: Problem) -> list[TheoremRound]:
        return [TheoremRound(eta, steps, float(d.mean()), problem.devices) for d in self.descents]


def train(
    problem: Problem,
    w: Array,
    eta: float,
    steps: int,
    rounds: int,
    draw: np.random.Generator,
) -> Trained:
    """Run FedAvg from ``w [R, M]``: every step draws B_k of D_k samples without replacement."""
    batch, p = problem.devices.batch, problem.devices.shares
    squares, descents, projected = [], [], 0
    before = problem.loss(w)
    for _ in range(rounds):
        squares.append((problem.gradient(w) ** 2).sum(-1))
        local = np.repeat(w[:, None], len(problem.x), axis=1)
        for _ in range(steps):
            keys = draw.random((len(w), *problem.owned.shape))
            keys[:, ~problem.owned] = np.inf
            chosen = keys.argsort(-1).argsort(-1) < batch[:, None]
            local = local - eta * np.einsum(
                "rkdm,rkd->rkm", problem.slopes(local), chosen / batch[:, None]
            )
            inside = np.clip(local, problem.low, problem.high)
            projected += int((np.abs(inside - local) > 1e-9).sum())
            local = inside
        w = np.einsum("rkm,k->rm", local, p)
        after = problem.loss(w)
        descents.append(before - after)
        before = after
    return Trained(np.array(squares), np.array(descents), projected, w)


def _devices(x: Array, sizes: Array, batch: Array) -> Devices:
    dispersion = [
        ((x[k, :n] - x[k, :n].mean(0)) ** 2).sum() for k, n in enumerate(sizes.astype(int))
    ]
    return Devices(sizes, batch, np.array(dispersion))


def _means(devices: Devices, values: Array) -> Array:
    """Return each device's mean over its own samples of ``values [..., K, D, M]``."""
    owned = np.arange(values.shape[-2]) < devices.samples[:, None]
    found: Array = np.einsum("...kdm,kd->...km", values, owned / devices.samples[:, None])
    return found


def quadratic(x: Array, sizes: Array, batch: Array, curvature: Array) -> Problem:
    """f(w, (x, y)) = (w - x)^T A_y (w - x) / 2 with A_y diagonal, ``curvature [K, M]`` > 0.

    Strongly convex, y is the device. beta = Theta = the largest curvature. With x_bar the devices'
    means, coordinate by coordinate sum p_k (a_k (w - x_bar_k))^2 <= zeta_1 (sum p_k a_k (w -
    x_bar_k))^2 + zeta_2: for zeta_1 above sum p a^2 / (sum p a)^2 the difference is a concave
    parabola, and zeta_2 its maximum.
    """
    devices = _devices(x, sizes, batch)
    p, centre = devices.shares[:, None], _means(devices, x)
    mean, square = (p * curvature).sum(0), (p * curvature**2).sum(0)
    zeta_1 = float(1.1 * (square / mean**2).max())
    # -A w^2 + 2 B w - C, coordinate by coordinate; its maximum is B^2/A - C.
    one, two = (p * curvature * centre).sum(0), (p * curvature**2 * centre).sum(0)
    a = zeta_1 * mean**2 - square
    b = zeta_1 * mean * one - two
    c = zeta_1 * one**2 - (p * curvature**2 * centre**2).sum(0)
    zeta_2 = float((b**2 / a - c).sum())
    beta = float(curvature.max())
    owned = (np.arange(x.shape[1]) < sizes[:, None]) / sizes[:, None]

    def loss(w: Array) -> Array:
        apart = (w[:, None, None] - x) ** 2 * curvature[:, None] / 2
        found: Array = np.einsum("rkdm,kd,k->r", apart, owned, devices.shares)
        return found

    def slopes(w: Array) -> Array:
        return curvature[:, None] * (w[:, :, None] - x)

    return Problem(x, devices, Constants(beta, beta, zeta_1, max(zeta_2, 0.0)), slopes, loss)


def cosine(x: Array, sizes: Array, batch: Array, height: Array) -> Problem:
    """f(w, x) = sum_m a_m (1 - cos(w_m - x_m)), ``height [M]`` > 0: smooth and nonconvex.

    beta = Theta = max a. A device's gradient is a_m Im(e^(i w_m) conj(z_k)) with z_k its mean of
    e^(i x); so the devices' variance is at most a_m^2 times the largest eigenvalue of the z_k's
    covariance in the plane, and some w attains it in every coordinate: zeta_1 = 1, zeta_2 exact.
    """
    devices = _devices(x, sizes, batch)
    p = devices.shares[:, None]
    real, imaginary = (_means(devices, f(x)) for f in (np.cos, np.sin))
    real, imaginary = (z - (p * z).sum(0) for z in (real, imaginary))
    aa, bb, ab = (
        (p * u * v).sum(0) for u, v in ((real, real), (imaginary, imaginary), (real, imaginary))
    )
    largest = (aa + bb) / 2 + np.sqrt(((aa - bb) / 2) ** 2 + ab**2)
    beta = float(height.max())
    owned = (np.arange(x.shape[1]) < sizes[:, None]) / sizes[:, None]

    def loss(w: Array) -> Array:
        apart = height * (1 - np.cos(w[:, None, None] - x))
        found: Array = np.einsum("rkdm,kd,k->r", apart, owned, devices.shares)
        return found

    def slopes(w: Array) -> Array:
        return height * np.sin(w[:, :, None] - x)

    constants = Constants(beta, beta, 1.0, float((height**2 * largest).sum()))
    return Problem(x, devices, constants, slopes, loss)


def double_well(x: Array, sizes: Array, batch: Array) -> Problem:
    """f(w, x) = sum_m ((w_m - x_m)^2 - 1)^2 / 4: nonconvex, with constants on a cube only.

    The cube is [min x - 1, max x + 1] in every coordinate. At its ends every sample's slope points
    inwards, and w - eta f'(w) is monotone for eta beta <= 1, so no step leaves it: the projection
    is there and never acts. With u = w - x at most ``reach``, beta = Theta = max(3 reach^2 - 1, 1).
    The cubes of the slopes cancel between devices, so that sum p_k (F_k' - F')^2 is a polynomial
    whose maximum on the interval is found at its stationary points: zeta_1 = 1, zeta_2 exact.
    """
    devices = _devices(x, sizes, batch)
    owned = np.arange(x.shape[1]) < sizes[:, None]
    low, high = float(x[owned].min()) - 1, float(x[owned].max()) + 1
    reach = high - low - 1
    beta = max(3 * reach**2 - 1, 1.0)
    moments = [_means(devices, x**power) for power in (1, 2, 3)]
    zeta_2 = 0.0
    for m in range(x.shape[-1]):
        one, two, three = (moment[:, m] for moment in moments)
        # (w - x)^3 - (w - x) without the powers that all devices share
        slopes_of = [
            Polynomial([b - c, 3 * s, -3 * b]) for b, s, c in zip(one, two, three, strict=True)
        ]
        mean = sum(
            (p * q for p, q in zip(devices.shares, slopes_of, strict=True)), Polynomial([0.0])
        )
        variance = sum(
            (p * (q - mean) ** 2 for p, q in zip(devices.shares, slopes_of, strict=True)),
            Polynomial([0.0]),
        )
        turning = variance.deriv().roots()
        inside = turning.real[(turning.real > low) & (turning.real < high)]
        zeta_2 += float(max(variance(at) for at in [low, high, *inside]))
    shares = owned / sizes[:, None]

    def loss(w: Array) -> Array:
        apart = ((w[:, None, None] - x) ** 2 - 1) ** 2 / 4
        found: Array = np.einsum("rkdm,kd,k->r", apart, shares, devices.shares)
        return found

    def slopes(w: Array) -> Array:
        apart = w[:, :, None] - x
        return apart**3 - apart

    constants = Constants(beta, beta, 1.0, zeta_2)
    return Problem(x, devices, constants, slopes, loss, low, high)


def opposed(steps: int, pull: float = 0.01) -> tuple[Problem, Array, float]:
    """Return the counterexample of docs/theory.md to the printed bound, its start and its rate.

    Two devices in one dimension, full batches: F_1' = gamma + 1 + w, F_2' = gamma - 1 - w, so
    beta = 1 and F' = gamma, on |w| <= 1.2 pull, where zeta_1 = 1 and zeta_2 = (1 + 1.2 pull)^2.
    With eta = pull/e the devices step pull to the left and to the right, and their mean drifts
    uphill, by about pull^2 / 2; gamma is chosen to make the rise the largest.
    """
    eta = pull / steps
    gamma = eta * (steps - 1) / 4
    sign = np.array([1.0, -1.0])
    x = np.zeros((2, 2, 1))
    devices = Devices(np.full(2, 2.0), np.full(2, 2.0), np.zeros(2))

    def loss(w: Array) -> Array:
        return np.asarray(gamma * w[:, 0])

    def slopes(w: Array) -> Array:
        slope = gamma + sign[:, None] * (1 + w)
        return np.repeat(slope[:, :, None], 2, axis=2)

    constants = Constants(1.0, 0.0, 1.0, (1 + 1.2 * pull) ** 2)
    edge = 1.2 * pull
    return Problem(x, devices, constants, slopes, loss, -edge, edge), np.zeros((1, 1)), eta
