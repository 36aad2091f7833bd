"""Who holds which samples: a session's labels and how they are divided among its devices.

Two groups of devices take turns; ``label_groups`` says which labels each group has, and a partition
gives every training sample with one of those labels to exactly one of the K devices. The groups are
partitioned independently, so both have all the samples of a label that they share.
``ebbflow.data.distributions`` has the rules that divide labels and devices together.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Indices

ClassNumbers = NDArray[np.integer[Any]]
"""The label of every training sample: ``[N]``, any integer type."""
Priors = NDArray[np.float64]
"""Draws from a Dirichlet distribution, one per row; each row sums to one."""


class Partition(Protocol):
    """A rule that divides the samples of some labels among devices, each sample to exactly one."""

    def __call__(
        self,
        y: ClassNumbers,
        labels: Sequence[int],
        devices: int,
        alpha: float,
        rng: np.random.Generator,
    ) -> list[Indices]:
        """Return, for each device, the ascending rows of ``y`` that it holds."""
        ...


def label_groups(classes: int, overlap: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the labels of group A and of group B.

    With L classes and overlap o, a group has G = floor(L / (2 - o)) labels, of which
    O = floor(G o) are shared and U = G - O are its own. A has the labels 0 .. G-1 and B the labels
    U .. U+G-1, so a label at the end can stay unused. If nothing would be shared (O = 0), the
    labels are halved, and B gets the larger half of an odd number.

    >>> label_groups(10, 0.0)
    ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    >>> label_groups(10, 0.2)
    ((0, 1, 2, 3, 4), (4, 5, 6, 7, 8))
    >>> a, b = label_groups(100, 0.2)
    >>> len(a), len(b), len(set(a) & set(b))
    (55, 55, 11)
    """
    if classes < 2:
        raise EbbflowError(
            f"The data set has {classes} classes, too few for two groups of labels; "
            "choose a data set with at least 2 classes."
        )
    if not 0.0 <= overlap <= 1.0:
        raise EbbflowError(
            f"`partition.overlap` is {overlap}, not a share; give a number from 0 to 1."
        )
    # In floating point 55 * 0.2 may fall short of 11; the nearest simple fraction never does.
    share = Fraction(overlap).limit_denominator(1_000_000)
    size = math.floor(classes / (2 - share))
    shared = math.floor(size * share)
    if shared == 0:
        return tuple(range(classes // 2)), tuple(range(classes // 2, classes))
    unshared = size - shared
    return tuple(range(size)), tuple(range(unshared, unshared + size))


def dirichlet_devices(
    y: ClassNumbers,
    labels: Sequence[int],
    devices: int,
    alpha: float,
    rng: np.random.Generator,
) -> list[Indices]:
    """Give every device the same number of samples, drawn by its own label prior.

    Of the N samples with one of the L labels, each of the K devices gets floor(N / K), and the
    first N mod K devices one more. Device after device draws a prior q ~ Dir(alpha 1_L) and then
    its samples one by one: a label from q, and a random unused sample of that label. If the label
    has no sample left, it draws the label again, at most 3 L + 5 times in total, and then draws one
    uniformly from the labels that have samples left. Every sample is used, no device is empty, and
    late devices, which get what is left, may deviate from their prior.

    >>> y = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    >>> parts = dirichlet_devices(y, (0, 1), 2, 0.5, np.random.default_rng(0))
    >>> [len(part) for part in parts], sorted(np.concatenate(parts).tolist())
    ([3, 3], [0, 1, 2, 3, 4, 5])
    """
    rows = _rows_by_label(y, labels, devices, alpha, least=1)
    total = sum(map(len, rows))
    pools = [rng.permutation(pool).tolist() for pool in rows]
    priors = _dirichlet(rng, alpha, (devices, len(pools))).tolist()
    draws = 3 * len(pools) + 5
    # The repeated draw has a closed form. Let m be the prior's mass on labels with samples left:
    # all draws fail with probability (1 - m)^draws, and a success follows the prior on those
    # labels. Two uniform numbers per sample thus do what up to 3 L + 5 label draws would.
    gates, picks = rng.random(total).tolist(), rng.random(total).tolist()
    parts: list[Indices] = []
    used = 0
    for device in range(devices):
        quota = total // devices + (device < total % devices)
        filled, cumulative, failure = _open_labels(pools, priors[device], draws)
        held: list[int] = []
        for gate, pick in zip(gates[used : used + quota], picks[used : used + quota], strict=True):
            if gate < failure:
                place = int(pick * len(filled))
            else:
                place = bisect_right(cumulative, pick * cumulative[-1], hi=len(filled) - 1)
            pool = pools[filled[place]]
            held.append(pool.pop())
            if not pool:
                filled, cumulative, failure = _open_labels(pools, priors[device], draws)
        used += quota
        parts.append(np.array(sorted(held), dtype=np.int64))
    return parts


def dirichlet_labels(
    y: ClassNumbers,
    labels: Sequence[int],
    devices: int,
    alpha: float,
    rng: np.random.Generator,
    minimum: int = 2,
    tries: int = 100,
) -> list[Indices]:
    """Split every label among the devices by its own prior; devices differ in size.

    For each label draw p ~ Dir(alpha 1_K), set p_k = 0 for every device k that already holds
    N / K samples or more, renormalise, and split the label's samples in these proportions. All
    of this is repeated until each device holds at least ``minimum`` samples, at most ``tries``
    times; after that, the largest device of the last draw gives random samples to those that have
    too few. Every sample is used.

    >>> y = np.repeat([0, 1, 2], 10)
    >>> parts = dirichlet_labels(y, (0, 2), 4, 0.3, np.random.default_rng(0))
    >>> min(map(len, parts)) >= 2, len(set(np.concatenate(parts).tolist()))
    (True, 20)
    """
    if minimum < 1:
        raise EbbflowError(
            f"`minimum` is {minimum}, and a device cannot train on no sample; set it to at least 1."
        )
    if tries < 1:
        raise EbbflowError(f"`tries` is {tries}; set it to at least 1.")
    rows = _rows_by_label(y, labels, devices, alpha, least=minimum)
    sizes = [len(pool) for pool in rows]
    for _ in range(tries):
        counts = _label_counts(sizes, devices, alpha, rng)
        if counts.sum(axis=0).min() >= minimum:
            break
    held: list[list[int]] = [[] for _ in range(devices)]
    for pool, count in zip(rows, counts, strict=True):
        pieces = np.split(rng.permutation(pool), np.cumsum(count)[:-1])
        for mine, piece in zip(held, pieces, strict=True):
            mine.extend(piece.tolist())
    _fill_up(held, minimum, rng)
    return [np.array(sorted(mine), dtype=np.int64) for mine in held]


PARTITIONS: dict[str, Partition] = {
    "dirichlet": dirichlet_devices,
    "dirichlet_labels": dirichlet_labels,
}
"""Every partition by its name in ``partition.kind``."""


def rows_of(y: ClassNumbers, labels: Sequence[int]) -> list[Indices]:
    """Return the ascending rows of each label, after checking that every label has samples."""
    rows = [np.flatnonzero(y == label).astype(np.int64) for label in labels]
    missing = [label for label, pool in zip(labels, rows, strict=True) if not len(pool)]
    if missing:
        raise EbbflowError(
            f"No training sample has the label{'s' * (len(missing) > 1)} "
            f"{', '.join(map(str, missing))}, which the partition is to spread over the devices; "
            "use more of the training set or leave these labels out."
        )
    return rows


def _rows_by_label(
    y: ClassNumbers, labels: Sequence[int], devices: int, alpha: float, least: int
) -> list[Indices]:
    """Return each label's rows, after checking that there are ``least`` for every device."""
    if devices < 1:
        raise EbbflowError(f"`partition.devices` is {devices}; set it to at least 1.")
    if not (math.isfinite(alpha) and alpha > 0):
        raise EbbflowError(
            f"`partition.alpha` is {alpha}, which no Dirichlet law has; give a finite number "
            "above 0."
        )
    wanted = sorted(set(labels))
    if not wanted:
        raise EbbflowError(
            "The partition was given no label to spread over the devices; choose a "
            "`partition.overlap` and a data set that leave each group at least one."
        )
    rows = rows_of(y, wanted)
    total = sum(map(len, rows))
    if devices * least > total:
        need = f"{least} samples each" if least > 1 else "one sample each"
        lower = "`partition.devices` or `minimum`" if least > 1 else "`partition.devices`"
        raise EbbflowError(
            f"{devices} devices cannot have {need} of only {total} training samples with the "
            f"session's labels; lower {lower} or use more data."
        )
    return rows


def _log_gamma_draws(rng: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> Priors:
    """Draw log X for X ~ Gamma(alpha, 1); X itself may be too small for a float.

    X = Y V^(1/alpha) with Y ~ Gamma(alpha + 1, 1) and V uniform.
    """
    # Beyond this range a draw is one-hot, or uniform, to the last bit.
    alpha = min(max(alpha, 1e-100), 1e100)
    return np.log(rng.standard_gamma(alpha + 1.0, shape)) - rng.standard_exponential(shape) / alpha


def _normalised(logarithms: Priors) -> Priors:
    """Return exp of each row, scaled to sum to one; the largest entry never underflows."""
    weights = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)


def _dirichlet(rng: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> Priors:
    """Draw rows from Dir(alpha 1), finite and summing to one for every alpha > 0."""
    return _normalised(_log_gamma_draws(rng, alpha, shape))


def _open_labels(
    pools: list[list[int]], prior: list[float], draws: int
) -> tuple[list[int], list[float], float]:
    """Return the labels with samples left, their cumulative prior, and P(all draws fail)."""
    filled = [label for label, pool in enumerate(pools) if pool]
    # Summed over the empty labels: 1 - (the rest) would lose a tiny mass to rounding.
    empty = min(1.0, sum(prior[label] for label, pool in enumerate(pools) if not pool))
    cumulative: list[float] = []
    mass = 0.0
    for label in filled:
        mass += prior[label]
        cumulative.append(mass)
    # A prior can be zero, to the last bit, on every label that is left.
    return filled, cumulative, empty**draws if mass > 0.0 else 1.0


def _label_counts(
    sizes: list[int], devices: int, alpha: float, rng: np.random.Generator
) -> Indices:
    """Draw once how many samples of each label (row) each device (column) gets."""
    total = sum(sizes)
    counts = np.zeros((len(sizes), devices), dtype=np.int64)
    held = np.zeros(devices, dtype=np.int64)
    logarithms = _log_gamma_draws(rng, alpha, (len(sizes), devices))
    for label, size in enumerate(sizes):
        # As long as a label is left, some device is below N / K; masking the logarithms keeps its
        # share positive even if alpha is so small that the plain share would be zero.
        shares = _normalised(np.where(held * devices < total, logarithms[label], -np.inf))
        # Rounding the bounds, not truncating, gives no stray sample to a device with p_k = 0.
        bounds = np.rint(np.cumsum(shares) * size).astype(np.int64)
        counts[label] = np.diff(bounds, prepend=0)
        held += counts[label]
    return counts


def _fill_up(held: list[list[int]], minimum: int, rng: np.random.Generator) -> None:
    """Move random samples, one by one, from the largest device to those below ``minimum``."""
    sizes = np.array([len(mine) for mine in held], dtype=np.int64)
    for poor in np.flatnonzero(sizes < minimum).tolist():
        while sizes[poor] < minimum:
            rich = int(sizes.argmax())
            place = int(rng.integers(sizes[rich]))
            held[rich][place], held[rich][-1] = held[rich][-1], held[rich][place]
            held[poor].append(held[rich].pop())
            sizes[rich] -= 1
            sizes[poor] += 1
