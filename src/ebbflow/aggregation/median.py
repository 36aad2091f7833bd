"""The median of every entry (Yin et al., 2018)."""

from __future__ import annotations

from torch import Tensor

from ebbflow.core.aggregation import Aggregation


def median() -> Aggregation:
    """Return the median of every entry over the devices, each of which counts once.

    Numbers of samples are not used: a device could claim any. With an even number of devices it is
    the mean of the two in the middle.
    """
    return Aggregation("median", entries=_median)


def _median(values: Tensor) -> Tensor:
    ordered, count = values.sort(0).values, len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
