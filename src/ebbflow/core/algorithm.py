"""The `Algorithm` record: an FL algorithm as pure functions whose defaults are FedAvg's.

Each hook is written for *one* device, without a client axis; an engine loops over devices or maps
them with ``torch.func.vmap``. State goes in and comes out; nothing hides in ``self``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.core.types import Buffers, Gradient, Labels, ModelState, Output, State, Theta


class Broadcast(NamedTuple):
    """What every participant receives: the model to start from, and an algorithm's own vectors."""

    theta: Theta
    buffers: Buffers
    extras: State


class Population(NamedTuple):
    """All devices of a session, whether or not they take part in a round: |K^(s)| and D^(s)."""

    devices: int
    samples: int


class LocalRun(NamedTuple):
    """What a device did in one round.

    ``steps`` were really made; ``step_sum`` is their sum under heavy-ball momentum, in units of the
    rate and for a constant gradient (``steps`` without momentum); ``samples`` is D_k, or the number
    of samples that the device stands for where devices are drawn by size; ``start_gradient`` is the
    gradient at the broadcast model over all of the round's mini-batches, for an algorithm that asks
    for it.
    """

    theta: Theta
    buffers: Buffers
    steps: int
    step_sum: float
    lr: float
    samples: Tensor
    start_gradient: Tensor | None = None


class Upload(NamedTuple):
    """A device's contribution to the sums that the server needs, or the sum of many.

    ``delta`` is D_k (theta_k - theta), ``buffers`` is D_k times the device's buffers, ``samples``
    is D_k, ``devices`` is one; ``extras`` are an algorithm's own summands. Only sums are ever used,
    so a device that drops out is simply missing from them.
    """

    delta: Tensor
    buffers: Tensor
    samples: Tensor
    devices: Tensor
    extras: State


def combine(function: Callable[..., Tensor], *uploads: Upload) -> Upload:
    """Apply a function of tensors to uploads, field by field (``torch.add`` adds two of them)."""
    return Upload(
        delta=function(*(upload.delta for upload in uploads)),
        buffers=function(*(upload.buffers for upload in uploads)),
        samples=function(*(upload.samples for upload in uploads)),
        devices=function(*(upload.devices for upload in uploads)),
        extras={
            name: function(*(upload.extras[name] for upload in uploads))
            for name in uploads[0].extras
        },
    )


def add_up(total: Upload | None, upload: Upload) -> Upload:
    """Return the total with one more upload added to it in place."""
    if total is None:
        return combine(torch.clone, upload)
    return combine(Tensor.add_, total, upload)


def cross_entropy(
    output: Output, labels: Labels, anchors: dict[str, Output], client: State
) -> Tensor:
    """Return the loss of every sample: the objective of FedAvg."""
    return functional.cross_entropy(output.logits, labels, reduction="none")


def cross_entropy_slope(output: Output, labels: Labels, weights: Tensor) -> Output:
    """Return the derivative of the weighted cross-entropy in the outputs: softmax minus one-hot.

    The same numbers as autograd's, without a graph.
    """
    slope = functional.softmax(output.logits, -1)
    one = slope.new_full((1, 1), -1.0).expand(len(slope), 1)
    slope = slope.scatter_add_(1, labels.unsqueeze(-1), one).mul_(weights.unsqueeze(-1))
    return Output(slope, torch.zeros_like(output.features))


Objective = Callable[[Output, Labels, dict[str, Output], State], Tensor]
"""The loss of each sample from the outputs and the anchors' outputs; never sees theta."""


@dataclass(frozen=True)
class Affine:
    """The direction g + pull (theta - theta_0) + shift, with theta_0 the model that was sent.

    Code that knows that a direction has this form can compute many steps faster. ``shift`` is the
    same in all steps of a round.
    """

    pull: float = 0.0
    shift: Callable[[Broadcast, State], Tensor] | None = None

    def __call__(
        self, gradient: Gradient, theta: Theta, shared: Broadcast, client: State
    ) -> Gradient:
        """Return the direction."""
        if self.shift is not None:
            gradient = gradient + self.shift(shared, client)
        if self.pull:
            gradient = gradient + self.pull * (theta - shared.theta)
        return gradient


def weighted_upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    """Upload the displacement and the buffers, weighted by D_k; remember nothing new."""
    upload = Upload(
        delta=(run.theta - shared.theta).mul_(run.samples),
        buffers=run.samples * run.buffers,
        samples=run.samples,
        devices=torch.ones_like(run.samples),
        extras={},
    )
    return upload, client


def average(theta: Theta, server: State, upload: Upload) -> tuple[Theta, State]:
    """Return w^(s,t+1) = w^(s,t) + sum_k D_k (w_k - w^(s,t)) / sum_k D_k."""
    return theta + upload.delta / upload.samples, server


Rejoin = Callable[[Theta, Population, State], State]
"""A server's state from the mean state of the devices that are here (see `mean_state`), in which
newcomers count with a fresh one."""


def mean_state(states: Sequence[State], samples: Sequence[int]) -> State:
    """Return the mean of the devices' states, each weighted by D_k.

    States are read one after another, so they may be loaded as they are needed.

    >>> mean_state([{"c": torch.ones(1)}, {"c": torch.zeros(1)}], [3, 1])
    {'c': tensor([0.7500])}
    """
    everything = sum(samples)
    total: State = {}
    for state, count in zip(states, samples, strict=True):
        if not total:
            total = {name: torch.zeros_like(value) for name, value in state.items()}
        share = count / everything
        total = {name: value + state[name] * share for name, value in total.items()}
    return total


class Algorithm(NamedTuple):
    """An FL algorithm. Every default is FedAvg's; an algorithm names only what it changes.

    Attributes:
        name: What records and the command line call it.
        init_server: The server's state at a session's start, from w^(s,1).
        init_client: A device's state at its first participation, with every name it will have.
        rejoin: The server's state at a session's start when devices keep theirs, from w^(s,1), the
            population and the mean of the states of the devices that are here. By default a fresh
            state, because what a server remembers (momentum) belongs to a model that was replaced.
        broadcast: Where devices start this round, and what else they are sent.
        anchors: Frozen models whose outputs the objective compares with (MOON, distillation).
        objective: Loss of each sample from the outputs and the anchors' outputs; never sees theta.
        direction: The gradient plus terms in theta (proximal, control variates): the gradient
            itself or a new tensor, never one that is kept elsewhere. An `Affine` is fastest.
        upload: What a device sends and what it remembers.
        server_step: The next global model from the sums.
        start_gradient: Whether `upload` needs `LocalRun.start_gradient`, at the cost of a second
            pass.
    """

    name: str
    init_server: Callable[[Theta, Population], State] = lambda theta, population: {}
    init_client: Callable[[Broadcast], State] = lambda shared: {}
    rejoin: Rejoin | None = None
    broadcast: Callable[[Theta, State], tuple[Theta, State]] = lambda theta, server: (theta, {})
    anchors: Callable[[Broadcast, State], dict[str, ModelState]] = lambda shared, client: {}
    objective: Objective = cross_entropy
    direction: Callable[[Gradient, Theta, Broadcast, State], Gradient] = Affine()
    upload: Callable[[Broadcast, State, LocalRun], tuple[Upload, State]] = weighted_upload
    server_step: Callable[[Theta, State, Upload], tuple[Theta, State]] = average
    start_gradient: bool = False
