"""The mean of updates that are clipped to a common length (as in Sun et al., 2019)."""

from __future__ import annotations

from torch import Tensor

from ebbflow.core.aggregation import Aggregation, Updates
from ebbflow.core.ranges import Positive


def clipped_mean(times: Positive = 1.0) -> Aggregation:
    """Return the mean of updates no longer than ``times`` the median length of the round.

    A long update is shortened, not left out, so that it moves the model no further than others do.
    """

    def weights(updates: Updates) -> Tensor:
        lengths = updates.moved.norm(dim=1)
        most = times * lengths.median()
        shrink: Tensor = (most / lengths.clamp_min(1e-30)).clamp_max(1)
        return shrink * updates.samples / updates.samples.sum()

    return Aggregation("clipped_mean", weights=weights)
