"""MOON (Li et al., 2021): local representations near the global model's and far from old ones."""

from __future__ import annotations

import torch

from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.objectives import Contrast
from ebbflow.core.ranges import NotNegative, Positive
from ebbflow.core.types import ModelState, State


def moon(mu: NotNegative = 1.0, tau: Positive = 1.0) -> Algorithm:
    """Return FedAvg on cross-entropy + mu l_con, on the representation that the model returns.

    l_con = -log(e^(cos(z, z_glob)/tau) / (e^(cos(z, z_glob)/tau) + e^(cos(z, z_prev)/tau))). z_glob
    comes from the broadcast model, z_prev from the device's own model after its last participation;
    both models are frozen and in evaluation mode. On a first participation there is no contrast.
    """
    if mu == 0:
        return Algorithm("moon")

    def init_client(shared: Broadcast) -> State:
        return {
            "theta": shared.theta,
            "buffers": shared.buffers,
            "seen": shared.theta.new_zeros(()),
        }

    def anchors(shared: Broadcast, client: State) -> dict[str, ModelState]:
        return {
            "global": ModelState(shared.theta, shared.buffers),
            "previous": ModelState(client["theta"], client["buffers"]),
        }

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        sent, _ = weighted_upload(shared, client, run)
        seen = torch.ones_like(client["seen"])
        return sent, {"theta": run.theta, "buffers": run.buffers, "seen": seen}

    return Algorithm(
        "moon",
        init_client=init_client,
        anchors=anchors,
        objective=Contrast(mu, tau),
        upload=upload,
    )
