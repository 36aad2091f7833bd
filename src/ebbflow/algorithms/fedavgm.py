"""FedAvgM (Hsu et al., 2019): momentum at the server, on parameters only."""

from __future__ import annotations

import torch

from ebbflow.core.algorithm import Algorithm, Population, Upload
from ebbflow.core.ranges import Decay, Positive
from ebbflow.core.types import State, Theta


def fedavgm(momentum: Decay = 0.9, rate: Positive = 1.0) -> Algorithm:
    """Return m <- momentum m + d, w <- w + rate m, with d the averaged displacement."""

    def init_server(theta: Theta, population: Population) -> State:
        return {"m": torch.zeros_like(theta)}

    def server_step(theta: Theta, server: State, total: Upload) -> tuple[Theta, State]:
        m = momentum * server["m"] + total.delta / total.samples
        return theta + rate * m, {"m": m}

    return Algorithm("fedavgm", init_server=init_server, server_step=server_step)
