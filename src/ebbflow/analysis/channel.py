"""The wireless channel: path loss, shadowing, fading, rates, and how long a transfer takes.

Values are arrays over devices [K], which broadcast; units are SI, and decibels where a docstring
says so. The symbols are those of the paper's "Communication and Computation Model" and its
appendix. A transfer can be timed in two ways: `slot_times` follows the fading slot by slot, as the
paper defines it; `ergodic_times` divides by the mean rate, a closed form that is a thousand times
faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebbflow.core.errors import EbbflowError

Array = NDArray[np.float64]
"""Real numbers, one per device [K], or per device and slot [K, N]."""

LIGHT = 3e8
"""c in m/s, rounded as in the paper."""
SEPARATION = 5.0
"""Slots that should fit into a coherence time, so that the channel is constant within a slot."""
LARGE = 50.0
"""Above this y, e^y E1(y) is summed as an asymptotic series, because e^y would overflow."""
CHUNK = 1 << 17
"""Slots times devices that are computed at once: they fit into a processor's cache."""
LEAST = 16
"""The least number of slots that are computed at once."""
MOST = 1e10
"""Slots times devices beyond which `slot_times` refuses to follow them."""


# --- large scale ---------------------------------------------------------------------------------


def break_point(carrier: float, server: float, device: float, environment: float) -> float:
    """Return d'_BP = 4 (h_BS - h_E)(h_UT - h_E) f_c / c, in m.

    >>> break_point(3.5e9, 10.0, 1.5, 1.0)
    210.0
    """
    return 4 * (server - environment) * (device - environment) * carrier / LIGHT


def path_loss(
    distance: ArrayLike,
    *,
    carrier: float = 3.5e9,
    server: float = 10.0,
    device: float = 1.5,
    environment: float = 1.0,
) -> Array:
    """Return PL_UMi-LoS in dB: 3GPP TR 38.901, urban micro, street canyon, line of sight.

    PL_1 = 32.4 + 21 log10 d_3D + 20 log10 f_c up to the break point, and beyond it PL_2 = 32.4 +
    40 log10 d_3D + 20 log10 f_c - 9.5 log10(d'_BP^2 + (h_BS - h_UT)^2), with f_c in GHz.

    Args:
        distance: d_2D in m, over the ground.
        carrier: f_c in Hz.
        server: h_BS in m.
        device: h_UT in m.
        environment: h_E in m.
    """
    over_ground = np.asarray(distance, dtype=np.float64)
    point = break_point(carrier, server, device, environment)
    squared = over_ground**2 + (server - device) ** 2  # d_3D^2
    common = 32.4 + 20 * _log10(carrier / 1e9)
    near = common + 10.5 * np.log10(squared)
    far = common + 20 * np.log10(squared) - 9.5 * _log10(point**2 + (server - device) ** 2)
    return np.where(over_ground <= point, near, far)


def _log10(value: float) -> float:
    """Return a logarithm; a value that has vanished is an error like any overflow."""
    if value == 0:
        raise FloatingPointError("the logarithm of a number that is zero after rounding")
    return math.log10(value)


def ring_distance(uniform: ArrayLike, nearest: float, radius: float) -> Array:
    """Return d_2D of devices spread evenly over a ring: f(d) = 2d / (R_cell^2 - d_min^2).

    ``uniform`` holds draws from [0, 1), one per device.
    """
    share = np.asarray(uniform, dtype=np.float64)
    return np.sqrt(nearest**2 + share * (radius**2 - nearest**2))


def large_scale(loss: ArrayLike, shadowing: ArrayLike = 0.0) -> Array:
    """Return psi_k = 10^(-(PL + xi)/10) from a path loss and its shadowing, both in dB."""
    return np.asarray(10 ** (-(np.asarray(loss) + np.asarray(shadowing)) / 10), dtype=np.float64)


def noise_density(level: float) -> float:
    """Return N_0 in W/Hz from dBm/Hz.

    >>> f"{noise_density(-174):.4g}"
    '3.981e-21'
    """
    return float(10 ** ((level - 30) / 10))


# --- small scale ---------------------------------------------------------------------------------


def doppler(speed: ArrayLike, carrier: float) -> Array:
    """Return f_d = v f_c / c in Hz."""
    return np.asarray(speed, dtype=np.float64) * carrier / LIGHT


def correlation(speed: ArrayLike, carrier: float, slot: float) -> Array:
    """Return rho_k = J_0(2 pi f_d tau), the correlation of the fading between adjacent slots.

    >>> f"{correlation(10.0, 3.5e9, 0.5e-3):.3f}"
    '0.967'
    """
    from scipy.special import j0  # noqa: PLC0415 - slow to import

    return np.asarray(j0(2 * math.pi * doppler(speed, carrier) * slot), dtype=np.float64)


def slot_warning(speed: ArrayLike, carrier: float, slot: float) -> str | None:
    """Return a warning if the slot is not well below the coherence time T_c = 0.423 / f_d.

    >>> slot_warning(10.0, 3.5e9, 0.5e-3) is None
    True
    """
    fastest = float(np.max(speed))
    coherence = math.inf if fastest == 0 else 0.423 / float(doppler(fastest, carrier))
    if slot * SEPARATION <= coherence:
        return None
    return (
        f"a slot of {slot * 1e3:g} ms is not well below the coherence time of "
        f"{coherence * 1e3:.3g} ms at {fastest:g} m/s: shorten wireless.slot to "
        f"{coherence / SEPARATION * 1e3:.2g} ms or less"
    )


class Fading:
    """Rayleigh fading as a Gauss-Markov process, with a generator for every device.

    h_k[n] = rho_k h_k[n-1] + sqrt(1 - rho_k^2) e_k[n] with e_k[n] ~ CN(0, 1) and h_k[1] = e_k[1].
    The result does not depend on how many slots are asked for at a time.
    """

    def __init__(self, generators: Sequence[np.random.Generator], rho: ArrayLike) -> None:
        self.generators = list(generators)
        self.rho = np.broadcast_to(np.asarray(rho, dtype=np.float64), len(self.generators))
        self.last: Array | None = None  # h of the slot before: [K, 2], real and imaginary part

    def gains(self, slots: int) -> Array:
        """Return |h_k[n]|^2 of the next slots, [K, slots]."""
        from scipy.signal import lfilter  # noqa: PLC0415 - takes a second to import

        noise = np.empty((len(self.generators), slots, 2))
        for device, generator in enumerate(self.generators):
            generator.standard_normal(out=noise[device])
        noise *= math.sqrt(0.5)
        fresh = np.sqrt(1 - self.rho**2)
        if self.last is None:  # the process begins in its stationary state
            steady = fresh > 0
            noise[steady, 0] /= fresh[steady, None]
            self.last = np.where(steady[:, None], 0.0, noise[:, 0])
        h = np.empty_like(noise)
        for rho in np.unique(self.rho):  # lfilter takes one recursion at a time
            who = self.rho == rho
            h[who], _ = lfilter(
                [math.sqrt(1 - rho**2)],
                [1.0, -rho],
                noise[who],
                axis=1,
                zi=(rho * self.last[who])[:, None],
            )
        self.last = h[:, -1].copy()
        return np.asarray(h[..., 0] ** 2 + h[..., 1] ** 2)

    def keep(self, who: NDArray[np.bool_]) -> None:
        """Continue with only some of the devices."""
        self.generators = [g for g, stays in zip(self.generators, who, strict=True) if stays]
        self.rho = self.rho[who]
        self.last = None if self.last is None else self.last[who]


# --- rates ---------------------------------------------------------------------------------------


def rate(bandwidth: ArrayLike, snr: ArrayLike, gain: ArrayLike) -> Array:
    """Return R[n] = W log2(1 + snr |h[n]|^2) in bit/s, with snr = P psi / (N_0 W)."""
    return np.asarray(np.asarray(bandwidth) * np.log2(1 + np.asarray(snr) * np.asarray(gain)))


def mean_rate(bandwidth: ArrayLike, snr: ArrayLike) -> Array:
    """Return E[R] over Rayleigh fading: W times the integral of log2(1 + snr x) e^-x.

    That is W e^y E1(y) / ln 2 with y = 1 / snr.

    >>> round(float(mean_rate(1.0, 1.0)), 4)
    0.8603
    """
    inverse = 1 / np.asarray(snr, dtype=np.float64)
    return np.asarray(np.asarray(bandwidth) * scaled_exp1(inverse) / math.log(2))


def scaled_exp1(y: ArrayLike) -> Array:
    """Return e^y E1(y) for y > 0, even where e^y overflows and E1(y) underflows.

    >>> f"{scaled_exp1(1e6):.12g}"
    '9.99999000002e-07'
    """
    from scipy.special import exp1  # noqa: PLC0415 - slow to import

    values = np.asarray(y, dtype=np.float64)
    small = np.minimum(values, LARGE)
    closed = np.asarray(np.exp(small) * exp1(small))
    if not np.any(values > LARGE):
        return closed
    large = np.maximum(values, LARGE)
    term = series = 1 / large
    for k in range(1, 16):  # the sum of (-1)^k k! / y^(k+1): the last term is below 1e-13 of it
        term = -term * k / large
        series = series + term
    return np.where(values <= LARGE, closed, series)


# --- times ---------------------------------------------------------------------------------------


class Link(NamedTuple):
    """One direction of the transfer for every device: Z in bits, and the mean SNR."""

    bits: Array
    snr: Array


def ergodic_times(bandwidth: ArrayLike, link: Link) -> Array:
    """Return Z / E[R] in s, the time of a transfer that spans many coherence times."""
    return np.asarray(link.bits / mean_rate(bandwidth, link.snr))


def slot_times(
    bandwidth: ArrayLike, links: Sequence[Link], fading: Fading, slot: float
) -> list[Array]:
    """Return for each link the least T = n tau for which n slots carry Z bits, exactly.

    All links see the same h_k[n] from n = 1 on, as in the paper's sums for up and down. The fading
    is computed in chunks of slots, about as many as will be needed, and only for devices that have
    not finished on all links.

    Args:
        bandwidth: W of each device in Hz, or of each link and device.
        links: The directions; every array has one value per device.
        fading: The devices' fading, at its beginning.
        slot: tau in s.
    """
    count = len(fading.generators)
    widths = np.broadcast_to(np.asarray(bandwidth, dtype=np.float64), (len(links), count))
    # In nats per slot and hertz: one logarithm an element, and a threshold for its sum.
    need = np.stack(
        [link.bits * math.log(2) / (w * slot) for w, link in zip(widths, links, strict=True)]
    )
    snr = np.stack([np.broadcast_to(link.snr, count) for link in links])
    slots = np.zeros((len(links), count), dtype=np.int64)
    usual = np.stack([mean_rate(1.0, ratio) for ratio in snr]) * math.log(2)
    _refuse_endless(float((need / usual).sum()))
    done = need <= 0
    stays = np.logical_not(np.all(done, axis=0))
    here = np.flatnonzero(stays)
    fading.keep(np.asarray(stays))
    while len(here):
        ahead = float(np.max(need[:, here] / usual[:, here]))
        gains = fading.gains(max(LEAST, math.ceil(min(1.2 * ahead, CHUNK / len(here)))))
        for index in range(len(links)):
            open_ = ~done[index, here]
            who = here[open_]
            if not len(who):
                continue
            moved = np.log1p(gains[open_] * snr[index, who, None])
            np.cumsum(moved, axis=1, out=moved)
            over = moved[:, -1] >= need[index, who]
            slots[index, who[~over]] += moved.shape[1]
            ends = who[over]
            slots[index, ends] += (moved[over] < need[index, ends, None]).sum(axis=1) + 1
            need[index, who] -= moved[:, -1]
            done[index, ends] = True
        stays = np.logical_not(np.all(done[:, here], axis=0))
        fading.keep(np.asarray(stays))
        here = here[stays]
    return [np.asarray(taken * slot, dtype=np.float64) for taken in slots]


def _refuse_endless(slots: float) -> None:
    if not slots <= MOST:
        raise EbbflowError(
            f'wireless.fading = "slots" would follow {slots:.1e} slots: set it to "ergodic", raise '
            "wireless.slot, or move fewer bits"
        )
