"""One device's local training, written once; every engine runs this function.

Forward pass, the loss's derivative on the outputs (the cotangent), pullback to theta, the
algorithm's direction, a heavy-ball step, an optional projection. Because the loss is a function of
the *outputs*, a closed-form gradient and autograd share one definition of every algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.func import grad, vjp

from ebbflow.core import vector
from ebbflow.core.algorithm import (
    Algorithm,
    Broadcast,
    LocalRun,
    Upload,
    cross_entropy,
    cross_entropy_slope,
)
from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import Score
from ebbflow.core.lazy import LazySequence
from ebbflow.core.rng import Name
from ebbflow.core.types import (
    Buffers,
    Examples,
    Gradient,
    Indices,
    Model,
    ModelState,
    Output,
    State,
    Theta,
)


class Batch(NamedTuple):
    """A mini-batch: inputs, labels, what each sample counts (1/B; 0 for padding), and noise."""

    x: Tensor
    y: Tensor
    weights: Tensor
    noise: Tensor | None = None


class Recipe(NamedTuple):
    """How every device steps: heavy-ball momentum, fresh each round, and the ball's radius."""

    momentum: float = 0.9
    radius: float | None = None


class BatchDraws(NamedTuple):
    """How a cohort's mini-batches are drawn, so that another process can draw the same ones.

    ``purpose`` is part of the draws' names; every device draws ``steps`` (a number, or a range)
    mini-batches of ``batch`` samples. ``wrong_labels``: whether some have wrong labels.
    """

    purpose: str
    steps: int | Sequence[int]
    batch: int
    wrong_labels: bool = False


class Cohort(NamedTuple):
    """Who trains in a round and on which rows; the same for all methods that run beside each other.

    ``batches[i]`` holds the row numbers of each step of ``devices[i]``, and may be drawn again each
    time it is read: see `held`. ``samples[i]`` is D_k; ``weights[i]`` is the device's weight in the
    sums, if that is not D_k. ``names`` (seed and purpose) begin the names of all further draws:
    crops and noise. ``shards[i]`` are all rows of ``devices[i]``, for engines that keep something
    for each of them; empty if unknown. ``draws`` says how to draw ``batches`` again, if they are
    drawn by name. An engine that lets others draw them tells ``counted`` what they have drawn: a
    device, its steps and their samples.
    """

    session: int
    round: int
    devices: tuple[int, ...]
    batches: Sequence[Sequence[Indices]]
    samples: tuple[int, ...]
    names: tuple[Name, ...] = ()
    shards: Sequence[Indices] = ()
    weights: tuple[float, ...] = ()
    draws: BatchDraws | None = None
    counted: Callable[[int, int, int], None] | None = None

    def weight(self, place: int) -> float:
        """Return what a device counts in the sums."""
        return self.weights[place] if self.weights else self.samples[place]

    def refuse_nobody(self) -> None:
        """Raise if nobody takes part: such a round has no mean."""
        if not self.devices:
            raise EbbflowError(f"session {self.session}, round {self.round}: nobody takes part")

    def only(self, places: Sequence[int]) -> Cohort:
        """Return the cohort of the devices at these places; what they draw stays the same."""
        return self._replace(
            devices=tuple(self.devices[place] for place in places),
            batches=LazySequence(len(places), lambda i: self.batches[places[i]]),
            samples=tuple(self.samples[place] for place in places),
            shards=[self.shards[place] for place in places] if self.shards else (),
            weights=tuple(self.weights[place] for place in places) if self.weights else (),
        )

    def held(self, places: Iterable[int]) -> Cohort:
        """Return the cohort with the batches at these places drawn once and kept."""
        kept = {place: self.batches[place] for place in places}
        return self._replace(batches=LazySequence(len(self.devices), kept.__getitem__))


class Lane(NamedTuple):
    """One method in a round: its algorithm, what it broadcasts, its rate, and device states."""

    algorithm: Algorithm
    shared: Broadcast
    lr: float
    clients: dict[int, State]


Trained = tuple[Upload, dict[int, State]]
"""What a round gives a lane: the sum of the uploads, and the participants' new states."""


RoutePath = Literal[
    "dense layers",
    "fused kernel",
    "mapped blocks",
    "one device at a time",
    "sample space",
    "touched rows",
    "whole vectors",
]
"""The ways in which engines train a lane."""


class Route(NamedTuple):
    """How an engine trains a lane, and why not in a faster way (empty if there is none)."""

    path: RoutePath
    reason: str = ""


class Engine(Protocol):
    """Trains cohorts of devices and evaluates models."""

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Train a cohort in every lane and return the sums."""
        ...

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Begin to evaluate the models; the returned function waits for the scores."""
        ...

    def mean_state(self, states: Sequence[State], samples: Sequence[int]) -> State:
        """Return the mean of device states, whole and weighted by D_k (`algorithm.mean_state`)."""
        ...

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Raise the `TrainingError` that names device and step, for a round that diverged.

        Trains the round again with the reference engine. Returns if every device's model stays
        finite there, and at once where this engine has looked at every device itself.
        """
        ...

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return how the lane is trained in such a round, and why not in a faster way."""
        ...

    def close(self) -> None:
        """Release what the engine holds."""
        ...


Watch = Callable[[Theta], None]
"""Called with theta after every step; the reference engine checks it."""


def states_of(lane: Lane, devices: Sequence[int]) -> list[State]:
    """Return each device's state, a fresh one if it has not taken part yet."""
    fresh = lane.algorithm.init_client(lane.shared)
    return [lane.clients.get(device, fresh) for device in devices]


def stacked(states: Sequence[State]) -> State:
    """Return the states of several devices as one, with a first axis for the devices."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def step_sum(steps: int, momentum: float) -> float:
    """Return how far ``steps`` heavy-ball steps of rate one go along a constant unit gradient.

    >>> [round(step_sum(k, 0.9), 2) for k in (1, 2, 3, 4, 5)]
    [1.0, 2.9, 5.61, 9.05, 13.14]
    """
    velocity = total = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1.0
        total += velocity
    return total


def cotangent(
    algorithm: Algorithm, output: Output, batch: Batch, anchors: dict[str, Output], client: State
) -> Output:
    """Return the derivative of the batch's weighted loss in logits and features."""
    if algorithm.objective is cross_entropy:
        return cross_entropy_slope(output, batch.y, batch.weights)

    def loss(out: Output) -> Tensor:
        losses = algorithm.objective(out, batch.y, anchors, client)
        return (losses * batch.weights).sum()

    slope_of: Output = grad(loss)(output)
    return slope_of


def loss_gradient(
    model: Model,
    algorithm: Algorithm,
    theta: Theta,
    buffers: Buffers,
    batch: Batch,
    anchors: dict[str, Output],
    client: State,
) -> tuple[Gradient, Buffers]:
    """Return the gradient of the batch's loss in theta, and the buffers after the forward pass.

    The gradient is the caller's own, to keep or to change.
    """

    def slope(output: Output) -> Output:
        return cotangent(algorithm, output, batch, anchors, client)

    if model.pullback is not None:
        output, buffers = model.forward(theta, buffers, batch.x, batch.noise, True)
        return model.pullback(theta, batch.x, slope(output)), buffers
    if model.gradient is not None:
        return model.gradient(theta, buffers, batch.x, batch.noise, slope)

    def forward(parameters: Theta) -> tuple[Output, Buffers]:
        return model.forward(parameters, buffers, batch.x, batch.noise, True)

    output, pullback, buffers = vjp(forward, theta, has_aux=True)  # type: ignore[misc]  # three results
    (gradient,) = pullback(slope(output))
    return gradient, buffers


def heavy_ball(
    theta: Theta, velocity: Tensor | None, direction: Gradient, momentum: float, lr: float
) -> tuple[Theta, Tensor]:
    """Return theta and velocity after a step: v <- momentum v + direction, theta <- theta - eta v.

    The first ``direction`` becomes the velocity. From the second step on both are updated in place,
    because models are large and fresh memory is slow.
    """
    if velocity is None:
        return torch.sub(theta, direction, alpha=lr), direction
    velocity = velocity.mul_(momentum).add_(direction)
    return theta.sub_(velocity, alpha=lr), velocity


def train(
    model: Model,
    algorithm: Algorithm,
    recipe: Recipe,
    shared: Broadcast,
    client: State,
    batches: Sequence[Batch],
    lr: float,
    samples: Tensor,
    watch: Watch | None = None,
) -> tuple[Upload, State]:
    """Train one device for one round and return its upload and its new state.

    w_k^(s,t),h+1 = w_k^(s,t),h - eta^(s,t) v^h+1, with v^h+1 = momentum v^h + direction and
    v^0 = 0: the momentum is fresh every round.
    """
    theta, buffers = shared.theta, shared.buffers
    frozen = algorithm.anchors(shared, client)
    velocity: Tensor | None = None
    at_start = torch.zeros_like(theta) if algorithm.start_gradient else None
    seen = torch.zeros_like(samples)
    for batch in batches:
        anchors = {
            name: model.forward(anchor.theta, anchor.buffers, batch.x, None, False)[0]
            for name, anchor in frozen.items()
        }
        if at_start is not None:
            count = (batch.weights > 0).sum()
            part, _ = loss_gradient(
                model, algorithm, shared.theta, shared.buffers, batch, anchors, client
            )
            at_start = at_start + count * part
            seen = seen + count
        gradient, buffers = loss_gradient(model, algorithm, theta, buffers, batch, anchors, client)
        direction = algorithm.direction(gradient, theta, shared, client)
        theta, velocity = heavy_ball(theta, velocity, direction, recipe.momentum, lr)
        if recipe.radius is not None:
            theta = vector.project(theta, recipe.radius)
        if watch is not None:
            watch(theta)
    steps = len(batches)
    run = LocalRun(
        theta,
        buffers,
        steps,
        step_sum(steps, recipe.momentum),
        lr,
        samples,
        None if at_start is None else at_start / torch.clamp(seen, min=1),
    )
    return algorithm.upload(shared, client, run)
