"""FedProx (Li et al., 2020): local training stays close to the broadcast model."""

from __future__ import annotations

from ebbflow.core.algorithm import Affine, Algorithm
from ebbflow.core.ranges import NotNegative


def fedprox(mu: NotNegative = 1.0) -> Algorithm:
    """Return FedAvg on the local loss plus (mu/2) ||w - w^(s,t)||^2, over parameters only."""
    return Algorithm("fedprox", direction=Affine(pull=mu))
