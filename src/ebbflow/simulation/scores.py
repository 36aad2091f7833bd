"""What a session's final model achieves, as a whole and device by device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORST = 0.1
"""The share of devices with the worst scores whose mean is told."""


class DeviceScores(NamedTuple):
    """Scores of the devices present, each on its own test samples: accuracies in percent, usually.

    ``mean`` counts every device alike, ``worst`` is the mean of the worst tenth (at least one
    device), ``spread`` the standard deviation; ``devices`` is how many have test samples.
    """

    mean: float
    worst: float
    spread: float
    devices: int


class FinalScores(NamedTuple):
    """What a session's final model achieves: on all test samples, and device by device.

    ``each`` has the score of every device present that has test samples, by its number.
    """

    accuracy: float
    each: Mapping[int, float]
    devices: DeviceScores | None = None


def device_accuracies(
    right: NDArray[np.bool_], owners: NDArray[np.int64], present: Sequence[int]
) -> dict[int, float]:
    """Return the accuracy of each device present that has test samples, in percent.

    >>> right, owners = np.array([True, True, False, False]), np.array([0, 1, 1, 2])
    >>> device_accuracies(right, owners, [0, 1, 3])
    {0: 100.0, 1: 50.0}
    """
    size = max(int(owners.max(initial=-1)), *present) + 1
    counts = np.bincount(owners, minlength=size)[list(present)]
    correct = np.bincount(owners, weights=right, minlength=size)[list(present)]
    shares = zip(present, correct.tolist(), counts.tolist(), strict=True)
    return {device: 100 * hit / count for device, hit, count in shares if count}


def summed_up(each: Mapping[int, float], higher: bool = True) -> DeviceScores | None:
    """Return mean, worst tenth and spread of devices' scores, of which more is better or worse.

    >>> summed_up({0: 100.0, 4: 50.0})
    DeviceScores(mean=75.0, worst=50.0, spread=25.0, devices=2)
    """
    if not each:
        return None
    rising = np.sort(np.array(list(each.values()), dtype=np.float64))
    ordered = rising if higher else rising[::-1]
    worst = ordered[: max(1, math.floor(WORST * len(ordered) + 0.5))]
    return DeviceScores(
        float(ordered.mean()), float(worst.mean()), float(ordered.std()), len(ordered)
    )
