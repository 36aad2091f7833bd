"""FedDyn (Acar et al., 2021): a linear term per device aligns local optima with the global one.

All means are weighted by the devices' numbers of samples, as in `ebbflow.algorithms.scaffold`.
"""

from __future__ import annotations

import torch

from ebbflow.core.algorithm import (
    Affine,
    Algorithm,
    Broadcast,
    LocalRun,
    Population,
    Upload,
    average,
    weighted_upload,
)
from ebbflow.core.ranges import Positive
from ebbflow.core.types import State, Theta


def feddyn(alpha: Positive = 0.01) -> Algorithm:
    """Return FedDyn.

    A device trains on its loss - <h_k, theta> + (alpha/2) ||theta - w||^2 and then remembers
    h_k <- h_k - alpha (theta_k - w); the server keeps h <- h - alpha sum_k D_k (theta_k - w) /
    D^(s) and moves to w = mean theta_k - h / alpha. At a fixed point the sum of D_k grad F_k is
    zero.
    """

    def init_server(theta: Theta, population: Population) -> State:
        return {"h": torch.zeros_like(theta), "samples": theta.new_tensor(population.samples)}

    def rejoin(theta: Theta, population: Population, mean: State) -> State:
        return {**init_server(theta, population), "h": mean["h"]}

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        sent, _ = weighted_upload(shared, client, run)
        return sent, {"h": client["h"] - alpha * (run.theta - shared.theta)}

    def server_step(theta: Theta, server: State, total: Upload) -> tuple[Theta, State]:
        h = server["h"] - alpha * total.delta / server["samples"]
        mean, _ = average(theta, server, total)
        return mean - h / alpha, {**server, "h": h}

    return Algorithm(
        "feddyn",
        init_server=init_server,
        init_client=lambda shared: {"h": torch.zeros_like(shared.theta)},
        rejoin=rejoin,
        direction=Affine(pull=alpha, shift=lambda shared, client: -client["h"]),
        upload=upload,
        server_step=server_step,
    )
