"""FedAdam and FedYogi (Reddi et al., 2021): an adaptive optimiser at the server.

Local training is FedAvg's; the averaged displacement d takes the place of a negative gradient.
This applies to parameters only; buffers are averaged.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ebbflow.core.algorithm import Algorithm, Population, Upload
from ebbflow.core.ranges import Decay, Positive
from ebbflow.core.types import State, Theta


def fedadam(
    rate: Positive = 0.01, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Positive = 1e-3
) -> Algorithm:
    """Return m <- b1 m + (1-b1) d, v <- b2 v + (1-b2) d^2, w <- w + rate m / (sqrt(v) + tau).

    v starts at tau^2; there is no bias correction, as in the original.
    """

    def second(v: Tensor, squared: Tensor) -> Tensor:
        return beta2 * v + (1 - beta2) * squared

    return _adaptive("fedadam", rate, beta1, tau, second)


def fedyogi(
    rate: Positive = 0.01, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Positive = 1e-3
) -> Algorithm:
    """Return FedAdam with v <- v - (1-b2) d^2 sign(v - d^2), which forgets large steps slowly."""

    def second(v: Tensor, squared: Tensor) -> Tensor:
        return v - (1 - beta2) * squared * torch.sign(v - squared)

    return _adaptive("fedyogi", rate, beta1, tau, second)


def _adaptive(
    name: str, rate: float, beta1: float, tau: float, second: Callable[[Tensor, Tensor], Tensor]
) -> Algorithm:
    def init_server(theta: Theta, population: Population) -> State:
        return {"m": torch.zeros_like(theta), "v": torch.full_like(theta, tau**2)}

    def server_step(theta: Theta, server: State, total: Upload) -> tuple[Theta, State]:
        d = total.delta / total.samples
        m = beta1 * server["m"] + (1 - beta1) * d
        v = second(server["v"], d * d)
        return theta + rate * m / (v.sqrt() + tau), {"m": m, "v": v}

    return Algorithm(name, init_server=init_server, server_step=server_step)
