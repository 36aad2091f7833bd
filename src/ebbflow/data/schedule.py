"""Who is here, and who takes part.

A roster lists, session after session, the devices K^(s) and the number of rounds. The paper's
``alternating`` groups are one; ``ebbflow.data.trace`` cuts others out of joins and leaves, and
``ebbflow.data.churn`` draws such joins and leaves at random. Of the devices that are here,
``participants`` picks A^(s,t), those that train in a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError

SLACK = 1e-6
"""Decimal settings such as 0.1 are not exact in binary; a product of theirs that misses a bound by
less than this share of a window, a round or a device is meant to reach it."""


class Presence(NamedTuple):
    """One session of a roster: its devices in ascending order, and its number of rounds T.

    ``rounds`` is None where the configuration's own number holds.
    """

    devices: tuple[int, ...]
    rounds: int | None = None


class Roster(NamedTuple):
    """The sessions s = 1, 2, ... in turn; ``names[i]`` is the external name of device ``i``."""

    names: tuple[str, ...]
    sessions: tuple[Presence, ...]


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
        rng: the source of the draw; all devices are taken without one.
        devices: the devices K^(s) that are present.
        sizes: the number of samples D_k of each of them.
        share: None takes all; a float in (0, 1] that fraction of them, halves rounded up, but at
            least one; an int that many, or all if fewer are present. So 1.0 is everyone and 1 a
            single device.
        weighting: drawn without replacement, ``uniform``, or ``weighted``: each device with a
            probability proportional to D_k, those of `certain_size` always.

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
    if share is None:
        return tuple(devices)
    fraction = isinstance(share, float)
    if not (0 < share <= 1 if fraction else share >= 1):
        raise EbbflowError(
            f"A share of {share} cannot be drawn from the devices; set `participation.share` or "
            "`probe.share` to a fraction above 0 and at most 1, or to a whole number of devices."
        )
    count = max(1, math.floor(share * present + 0.5 + SLACK)) if fraction else int(share)
    if count >= present:
        return tuple(devices)
    if weighting == "uniform":
        places: list[int] = rng.choice(present, size=count, replace=False).tolist()
    else:
        places = _weighted_draw(rng, devices, sizes, count)
    return tuple(devices[place] for place in sorted(places))


def _weighted_draw(
    rng: np.random.Generator, devices: Sequence[int], sizes: Sequence[int], count: int
) -> list[int]:
    """Draw distinct places, each with probability min(1, D_k / c): c is the `certain_size`.

    The devices that may be missing lie side by side in random order, each as long as it has
    samples. Points at a distance of c, the first one at random, pick whom they hit: as nobody is as
    long as c, nobody is hit twice.
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

    Their sum is ``count``. Device k then has to count D_k / min(1, D_k / c) = max(D_k, c): so the
    mean over those drawn is on average the mean over all, weighted by D_k, and what they count adds
    up to the samples of all. If everybody is drawn, c is 0.

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
    """Refuse a number below ``least``."""
    if value < least:
        raise EbbflowError(f"`{key}` is {value}; set it to at least {least}.")


def check_positive(key: str, value: float) -> None:
    """Refuse what is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise EbbflowError(f"`{key}` is {value}; give a finite number above 0.")
