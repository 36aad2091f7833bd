"""SCAFFOLD (Karimireddy et al., 2020): control variates against the drift of local steps.

All means are weighted by the devices' numbers of samples, as in the paper's objective: with the
plain means of the original, unequal devices would not converge to that objective's optimum. For
equal devices the two are the same.
"""

from __future__ import annotations

from typing import Literal

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
from ebbflow.core.types import State, Theta


def scaffold(option: Literal[1, 2] = 2) -> Algorithm:
    """Return SCAFFOLD with server rate one; all control variates start at zero.

    Local step: y <- y - eta (g(y) - c_k + c), corrected before the momentum. Then, with the *old* c
    and c_k, option II: c_k+ = c_k - c + (x - y)/(eta a), where a is the effective sum of the steps
    actually taken (K without momentum; with heavy-ball momentum, K would overestimate the gradient
    by a factor of 1.87 at three steps and 2.63 at five); option I: c_k+ = the gradient at x over
    the round's mini-batches. Server: c <- c + sum_k D_k (c_k+ - c_k) / D^(s).
    """

    def init_server(theta: Theta, population: Population) -> State:
        return {"c": torch.zeros_like(theta), "samples": theta.new_tensor(population.samples)}

    def rejoin(theta: Theta, population: Population, mean: State) -> State:
        # The old c would push newcomers along the old session's gradient: c is the mean again.
        return {**init_server(theta, population), "c": mean["c"]}

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        if not run.steps:
            c = client["c"]
        elif run.start_gradient is not None:
            c = run.start_gradient
        else:
            moved = (shared.theta - run.theta) / (run.lr * run.step_sum)
            c = client["c"] - shared.extras["c"] + moved
        sent, _ = weighted_upload(shared, client, run)
        return sent._replace(extras={"c": run.samples * (c - client["c"])}), {"c": c}

    def server_step(theta: Theta, server: State, total: Upload) -> tuple[Theta, State]:
        moved, _ = average(theta, server, total)
        return moved, {**server, "c": server["c"] + total.extras["c"] / server["samples"]}

    return Algorithm(
        "scaffold",
        init_server=init_server,
        init_client=lambda shared: {"c": torch.zeros_like(shared.theta)},
        rejoin=rejoin,
        broadcast=lambda theta, server: (theta, {"c": server["c"]}),
        direction=Affine(shift=lambda shared, client: shared.extras["c"] - client["c"]),
        upload=upload,
        server_step=server_step,
        start_gradient=option == 1,
    )
