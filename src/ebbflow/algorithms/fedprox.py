"""FedProx (Li et al., 2020): local training held close to the model that was sent."""

from __future__ import annotations

from ebbflow.algorithms.ranges import NotNegative
from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.types import Gradient, State, Theta


def fedprox(mu: NotNegative = 1.0) -> Algorithm:
    """Return FedAvg on the local loss plus (mu/2) ||w - w^(s,t)||^2, over parameters only."""
    if mu == 0:
        return Algorithm("fedprox")

    def direction(gradient: Gradient, theta: Theta, shared: Broadcast, client: State) -> Gradient:
        return gradient + mu * (theta - shared.theta)

    return Algorithm("fedprox", direction=direction)
