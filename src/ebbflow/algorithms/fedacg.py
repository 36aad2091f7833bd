"""FedACG (Kim et al., 2024): devices start from a look-ahead along the server's momentum."""

from __future__ import annotations

import torch

from ebbflow.core.algorithm import Affine, Algorithm, Population, Upload
from ebbflow.core.ranges import Decay, NotNegative
from ebbflow.core.types import State, Theta


def fedacg(momentum: Decay = 0.5, beta: NotNegative = 0.1) -> Algorithm:
    """Return FedACG with lambda = ``momentum``, on parameters only.

    Devices start at theta_0 = w + lambda m and train on their loss plus (beta/2) ||theta -
    theta_0||^2; then m <- lambda m + mean(theta_k - theta_0) and w <- w + m. Buffers are averaged:
    extrapolating a running variance could make it negative. Evaluation uses w, not the look-ahead.
    """

    def init_server(theta: Theta, population: Population) -> State:
        return {"m": torch.zeros_like(theta)}

    def server_step(theta: Theta, server: State, total: Upload) -> tuple[Theta, State]:
        m = momentum * server["m"] + total.delta / total.samples
        return theta + m, {"m": m}

    return Algorithm(
        "fedacg",
        init_server=init_server,
        broadcast=lambda theta, server: (theta + momentum * server["m"], {}),
        direction=Affine(pull=beta),
        server_step=server_step,
    )
