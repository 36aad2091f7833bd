"""Multi-Krum (Blanchard et al., 2017): the mean of the updates that lie closest to others."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from ebbflow.core.aggregation import Aggregation, Updates


def multi_krum(malicious: Annotated[float, Field(ge=0, lt=0.5)] = 0.3) -> Aggregation:
    """Return Multi-Krum for a share of malicious devices.

    Of K devices, f = ceil(malicious K) are taken to be malicious. A device's score is the sum of
    the squared distances to its K - f - 2 nearest; the K - f with the lowest scores, and whoever
    has the same as the last of them, are averaged, weighted by their numbers of samples.
    """

    def weights(updates: Updates) -> Tensor:
        moved, count = updates.moved.double(), len(updates.moved)
        supposed = math.ceil(malicious * count)
        nearest = max(1, count - supposed - 2)
        squares = (moved * moved).sum(1)
        apart = (squares[:, None] + squares[None, :] - 2 * moved @ moved.T).clamp_min(0)
        apart.fill_diagonal_(torch.inf)
        scores = apart.sort(1).values[:, : min(nearest, count - 1)].sum(1)
        most = scores.sort().values[max(0, count - supposed - 1)]
        kept = torch.where(scores <= most, updates.samples, 0)
        return kept / kept.sum()

    return Aggregation("multi_krum", weights=weights)
