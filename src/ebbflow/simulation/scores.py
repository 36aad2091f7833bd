"""What a session's final model achieves, as a whole and device by device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORST = 0.1
"""The share of devices with the lowest accuracies whose mean is told."""


class DeviceScores(NamedTuple):
    """Accuracies in percent of the devices present, each on its own test samples.

    ``mean`` counts every device alike, ``worst`` is the mean of the lowest tenth (at least one
    device), ``spread`` the standard deviation; ``devices`` is how many have test samples.
    """

    mean: float
    worst: float
    spread: float
    devices: int


class FinalScores(NamedTuple):
    """What a session's final model achieves: on all test samples, and device by device."""

    accuracy: float
    devices: DeviceScores | None = None


def device_scores(
    right: NDArray[np.bool_],
    owners: NDArray[np.int64],
    present: Sequence[int],
) -> DeviceScores | None:
    """Return the accuracies of the devices present, each on its own samples.

    >>> right, owners = np.array([True, True, False, False]), np.array([0, 1, 1, 2])
    >>> device_scores(right, owners, [0, 1])
    DeviceScores(mean=75.0, worst=50.0, spread=25.0, devices=2)
    """
    size = max(int(owners.max(initial=-1)), *present) + 1
    counts = np.bincount(owners, minlength=size)[list(present)]
    correct = np.bincount(owners, weights=right, minlength=size)[list(present)]
    accuracies = np.sort(100 * correct[counts > 0] / counts[counts > 0])
    if not len(accuracies):
        return None
    worst = accuracies[: max(1, math.floor(WORST * len(accuracies) + 0.5))]
    return DeviceScores(
        float(accuracies.mean()), float(worst.mean()), float(accuracies.std()), len(accuracies)
    )
