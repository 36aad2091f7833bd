"""FLTrust (Cao et al., 2021): updates count as far as they agree with the server's own."""

from __future__ import annotations

import torch
from torch import Tensor

from ebbflow.core.aggregation import Aggregation, Updates


def trust() -> Aggregation:
    """Return the mean of updates weighted by the cosine of their angle with the server's own.

    A cosine below zero counts as zero, and every update is brought to the length of the server's.
    The server trains like a device, on ``aggregation.server_samples`` samples of its own.
    """

    def weights(updates: Updates) -> Tensor:
        own = updates.server
        assert own is not None
        lengths = updates.moved.norm(dim=1).clamp_min(1e-30)
        agree = (updates.moved @ own / (lengths * own.norm().clamp_min(1e-30))).clamp_min(0)
        total = agree.sum()
        if not bool(total > 0):  # nobody is trusted: the model stays
            return torch.zeros_like(agree)
        weights: Tensor = agree / total * own.norm() / lengths
        return weights

    return Aggregation("trust", weights=weights, server_data=True)
