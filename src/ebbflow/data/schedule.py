"""Which devices are present in a session, and which of them take part in a round.

A roster lists, for every session, the devices K^(s) and the number of rounds. The paper's
``alternating`` groups are one; ``ebbflow.data.traces`` makes others from joins and leaves, which
``ebbflow.data.churn`` draws at random. From the devices present, ``participants`` picks A^(s,t),
those that train in a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.triggers import SLACK


class Presence(NamedTuple):
    """One session of a roster: its devices in ascending order, and its number of rounds T.

    ``rounds`` is None if the configuration's number applies.
    """

    devices: tuple[int, ...]
    rounds: int | None = None


class Roster(NamedTuple):
    """The sessions s = 1, 2, ... in order; ``names[i]`` is the external name of device ``i``."""

    names: Sequence[str]
    sessions: Sequence[Presence]


def alternating(sessions: int, devices: int) -> Roster:
    """Return the paper's schedule: two groups of K devices take turns.

    Group A = {0, ..., K-1} is present in the odd sessions s = 1, 3, ... and group B =
    {K, ..., 2K-1} in the even ones.

    >>> [presence.devices for presence in alternating(3, 2).sessions]
    [(0, 1), (2, 3), (0, 1)]
    """
    check_count("sessions", sessions)
    check_count("partition.devices", devices)
    groups = (Presence(tuple(range(devices))), Presence(tuple(range(devices, 2 * devices))))
    return Roster(
        names=tuple(f"d{device}" for device in range(2 * devices)),
        sessions=tuple(groups[index % 2] for index in range(sessions)),
    )


def participants(
    rng: np.random.Generator,
    devices: Sequence[int],
    sizes: Sequence[int],
    share: float | int | None,
    weighting: Literal["uniform", "weighted"],
) -> tuple[int, ...]:
    """Return A^(s,t), the devices that train in a round, in the order of ``devices``.

    Args:
        rng: the random generator; it is not used if all devices take part.
        devices: the devices K^(s) that are present.
        sizes: the number of samples D_k of each of them.
        share: None takes all; a float in (0, 1] takes that fraction of them, halves rounded up, but
            at least one; an int takes that many, or all if fewer are present. So 1.0 means
            everyone and 1 a single device.
        weighting: draws are without replacement: ``uniform``, or ``weighted`` with probabilities
            proportional to D_k, where devices of at least `certain_size` are always drawn.

    >>> participants(np.random.default_rng(0), (4, 7, 9), (10, 10, 10), None, "uniform")
    (4, 7, 9)
    >>> len(participants(np.random.default_rng(0), (4, 7, 9), (10, 10, 10), 0.5, "weighted"))
    2
    """
    present = len(devices)
    if len(sizes) != present:
        raise ValueError(f"{present} devices but {len(sizes)} sizes")
    if weighting not in ("uniform", "weighted"):
        raise EbbflowError(
            f"`participation.weighting` is {weighting!r}; set it to 'uniform' or 'weighted'."
        )
    if present == 0:
        raise EbbflowError(
            "No device is present to take part in a round; raise `schedule.min_devices` so that "
            "no session is empty."
        )
    count = drawn_count(present, share)
    if count == present:
        return tuple(devices)
    if weighting == "uniform":
        places: list[int] = rng.choice(present, size=count, replace=False).tolist()
    else:
        places = _weighted_draw(rng, devices, sizes, count)
    return tuple(devices[place] for place in sorted(places))


def drawn_count(present: int, share: float | int | None) -> int:
    """Return how many of the devices present take part; see `participants`.

    >>> [drawn_count(5, share) for share in (None, 0.5, 0.01, 2, 9)]
    [5, 3, 1, 2, 5]
    """
    if share is None:
        return present
    fraction = isinstance(share, float)
    if not (0 < share <= 1 if fraction else share >= 1):
        raise EbbflowError(
            f"A share of {share} cannot be drawn from the devices; set `participation.share` or "
            "`probe.share` to a fraction above 0 and at most 1, or to a whole number of devices."
        )
    count = max(1, math.floor(share * present + 0.5 + SLACK)) if fraction else int(share)
    return min(present, count)


def _weighted_draw(
    rng: np.random.Generator, devices: Sequence[int], sizes: Sequence[int], count: int
) -> list[int]:
    """Draw distinct places, each with probability min(1, D_k / c): c is the `certain_size`.

    The devices that are not certain to be drawn are laid end to end in random order, each as long
    as its number of samples. Points at intervals of c, the first one random, pick the devices they
    fall on: every device is shorter than c, so none is picked twice.
    """
    for device, size in zip(devices, sizes, strict=True):
        if size < 1:
            raise EbbflowError(
                f"Device {device} holds {size} samples and cannot be drawn by its size; set "
                "`participation.weighting` to 'uniform' or lower `partition.devices`."
            )
    lengths = np.asarray(sizes)
    spacing = certain_size(sizes, count)
    certain: list[int] = np.flatnonzero(lengths >= spacing).tolist()
    order = rng.permutation(np.flatnonzero(lengths < spacing))
    points = (rng.random() + np.arange(count - len(certain))) * spacing
    ends = np.cumsum(lengths[order])
    picked: list[int] = order[np.searchsorted(ends[:-1], points, side="right")].tolist()
    return certain + picked


def certain_size(sizes: Sequence[int], count: int) -> float:
    """Return c such that ``count`` devices can be drawn with the probabilities min(1, D_k / c).

    The probabilities add up to ``count``. Device k must then have the weight D_k / min(1, D_k / c)
    = max(D_k, c): the mean over those drawn is then, on average, the mean over all weighted by D_k,
    and the weights add up to the samples of all. If every device is drawn, c is 0.

    >>> certain_size((10, 20, 30, 40), 2), certain_size((10, 20, 170), 2)
    (50.0, 30.0)
    """
    rest, left = sum(sizes), count
    for size in sorted(sizes, reverse=True):
        if size * left < rest:
            return rest / left
        rest, left = rest - size, left - 1
    return 0.0


def check_count(key: str, value: int, least: int = 1) -> None:
    """Raise an error if a number is below ``least``."""
    if value < least:
        raise EbbflowError(f"`{key}` is {value}; set it to at least {least}.")


def check_positive(key: str, value: float) -> None:
    """Raise an error unless the value is a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise EbbflowError(f"`{key}` is {value}; give a finite number above 0.")
