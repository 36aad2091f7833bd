"""Algorithms that each lean on one hook, for tests of what carries them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.types import Labels, ModelState, Output, State, Theta


def cross_entropy_again(
    output: Output, labels: Labels, anchors: dict[str, Output], client: State
) -> Tensor:
    """Return the default objective under another name, which takes the autograd branch."""
    return functional.cross_entropy(output.logits, labels, reduction="none")


def by_autograd() -> Algorithm:
    """Return FedAvg whose cotangent is not in closed form."""
    return Algorithm("by_autograd", objective=cross_entropy_again)


def proximal(mu: float) -> Algorithm:
    """Use the direction hook for the gradient of mu/2 ||w - w^(s,t)||^2 (FedProx)."""
    return Algorithm(
        "proximal",
        direction=lambda gradient, theta, shared, _: gradient + mu * (theta - shared.theta),
    )


def _distil(output: Output, labels: Labels, anchors: dict[str, Output], client: State) -> Tensor:
    pull = (output.logits - anchors["global"].logits).square().sum(-1)
    push = functional.cosine_similarity(output.features, anchors["before"].features)
    return cross_entropy_again(output, labels, anchors, client) + 0.1 * pull + push


def _remember_theta(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    upload, _ = weighted_upload(shared, client, run)
    return upload, {"before": run.theta}


def anchored() -> Algorithm:
    """Use the anchors hook: towards the global model's logits, off the own last features."""
    return Algorithm(
        "anchored",
        init_client=lambda shared: {"before": torch.zeros_like(shared.theta)},
        anchors=lambda shared, client: {
            "global": ModelState(shared.theta, shared.buffers),
            "before": ModelState(client["before"], shared.buffers),
        },
        objective=_distil,
        upload=_remember_theta,
    )


def _control(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    upload, _ = weighted_upload(shared, client, run)
    drift = (shared.theta - run.theta) / (run.lr * run.step_sum)
    after = {"control": client["control"] + drift, "rounds": client["rounds"] + 1}
    return upload._replace(extras={"drift": drift, "rounds": after["rounds"]}), after


def _follow(theta: Theta, server: State, upload: Upload) -> tuple[Theta, State]:
    return theta + upload.delta / upload.samples, {"drift": upload.extras["drift"]}


def stateful() -> Algorithm:
    """Use client state, extras and a server state: a control variate that devices keep."""
    return Algorithm(
        "stateful",
        init_client=lambda shared: {
            "control": torch.zeros_like(shared.theta),
            "rounds": torch.zeros(()),
        },
        broadcast=lambda theta, server: (theta, {"slope": torch.full_like(theta, 0.01)}),
        direction=lambda gradient, _, shared, client: (
            gradient - 0.1 * client["control"] + shared.extras["slope"]
        ),
        upload=_control,
        server_step=_follow,
    )


TOYS = [by_autograd(), proximal(0.5), anchored(), stateful()]
