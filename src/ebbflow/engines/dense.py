"""Dense networks with their gradient in closed form, one device after another on each worker.

What remains of a step are its matrix products: there is no graph, no gradient for the inputs, and
no copy of theta before a step has changed it. The product that gives a weight's gradient also adds
it to the velocity. Mini-batches are gathered once for all lanes. Every product is of one device in
one lane, so that neither neighbours nor other lanes nor workers change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Affine, LocalRun, Upload, weighted_upload
from ebbflow.core.batching import Feed, first
from ebbflow.core.dense import LayerViews, add_gradient, forward, layer_views
from ebbflow.core.local import Cohort, Lane, Recipe, states_of, step_sum
from ebbflow.core.slopes import Compared, slopes
from ebbflow.core.types import (
    DenseNetwork,
    Examples,
    Indices,
    Linear,
    Model,
    Output,
    State,
    Theta,
)
from ebbflow.engines.leaves import Stretch, leaf_sums

KEPT_BYTES = 64 * 2**20  # of one device's mini-batches; more are gathered anew for every lane
ALIGNED = 64  # bytes: where torch lets its own tensors begin


def why_not_dense(model: Model, examples: Examples) -> str:
    """Return why there is no closed form for this model and data; nothing if there is one."""
    network = model.hints.dense
    if network is None:
        return f"the model {model.name} is no chain of dense layers"
    if examples.x.device.type != "cpu":
        return "dense layers are trained on the CPU"
    inputs = _first(network).inputs
    flat = network.flattens or examples.x.dim() == 2
    if not flat or math.prod(examples.x.shape[1:]) != inputs:
        return f"the samples are no rows of {inputs} numbers"
    return ""


def _first(network: DenseNetwork) -> Linear:
    return next(stage for stage in network.stages if isinstance(stage, Linear))


class _Batch(NamedTuple):
    """A mini-batch as rows of inputs; every sample counts alike."""

    x: Tensor
    y: Tensor
    noise: Tensor | None


_Batches = Callable[[int], _Batch]
"""The mini-batch of a step, by the step's number."""


class DenseLayers:
    """Trains the devices of a cohort in every lane; see the module's text."""

    def __init__(self, model: Model, feed: Feed, recipe: Recipe) -> None:
        assert model.hints.dense is not None
        self.network = model.hints.dense
        self.feed = feed
        self.recipe = recipe
        examples = feed.examples
        # Rows that are ready are gathered by one call; others are made by the feed.
        plain = examples.pixels is None and feed.noise is None and examples.x.is_contiguous()
        self._rows = examples.x.flatten(1) if plain else None

    def refusal(self, lane: Lane) -> str:
        """Return why the lane cannot be trained here; nothing if it can."""
        examples = self.feed.examples
        inputs = torch.float32 if examples.pixels is not None else examples.x.dtype
        if lane.shared.theta.dtype != inputs:
            return f"the model is {lane.shared.theta.dtype} and the samples are {inputs}"
        return ""

    def leaves(
        self, pool: Executor, windows: Iterable[range], lanes: Sequence[Lane], cohort: Cohort
    ) -> Iterator[Stretch]:
        """Yield the cohort's leaves, from devices that the workers train one by one."""
        for window in windows:
            trained = pool.map(partial(self._device, lanes, cohort), window)
            yield from leaf_sums(trained, cohort.devices[window.start : window.stop])

    def _device(
        self, lanes: Sequence[Lane], cohort: Cohort, place: int
    ) -> list[tuple[Upload, State]]:
        """Return what one device uploads and remembers in every lane."""
        held = cohort.held([place])
        rows = held.batches[place]
        batches: _Batches = partial(self._batch, held, place)
        sample = self.feed.sample_bytes
        if len(lanes) > 1 and sum(map(len, rows)) * sample <= KEPT_BYTES:
            batches = [batches(step) for step in range(len(rows))].__getitem__
        weight = cohort.weight(place)
        return [
            self._lane(lane, cohort.devices[place], batches, len(rows), weight) for lane in lanes
        ]

    def _batch(self, cohort: Cohort, place: int, step: int) -> _Batch:
        rows: Indices = cohort.batches[place][step]
        if self._rows is not None:
            at = torch.from_numpy(rows)
            return _Batch(self._rows.index_select(0, at), self.feed.examples.y[at], None)
        like = torch.empty(0)
        x, y, _, noise = first(self.feed.batch(cohort, [place], step, len(rows), like))
        return _Batch(x.flatten(1), y, noise)

    def _lane(
        self, lane: Lane, device: int, batches: _Batches, steps: int, weight: float
    ) -> tuple[Upload, State]:
        shared, algorithm = lane.shared, lane.algorithm
        (client,) = states_of(lane, [device])
        local = _LocalSteps(self.network, self.recipe, lane, client)
        for step in range(steps):
            local.step(batches(step))
        samples = torch.tensor(weight).to(shared.theta)
        if algorithm.upload is weighted_upload and local.theta is not shared.theta:
            # Nobody keeps the local model: its memory becomes the displacement's.
            sent = Upload(
                delta=local.theta.sub_(shared.theta).mul_(samples),
                buffers=samples * shared.buffers,
                samples=samples,
                devices=torch.ones_like(samples),
                extras={},
            )
            return sent, client
        run = LocalRun(
            local.theta,
            shared.buffers,
            steps,
            step_sum(steps, self.recipe.momentum),
            lane.lr,
            samples,
            local.mean_start_gradient(),
        )
        return algorithm.upload(shared, client, run)


class _LocalSteps:
    """One device's local steps in one lane: the same steps as those of `core.local.train`."""

    def __init__(self, network: DenseNetwork, recipe: Recipe, lane: Lane, client: State) -> None:
        self.network = network
        self.recipe = recipe
        self.lane = lane
        self.client = client
        self.theta: Theta = lane.shared.theta
        self._start = layer_views(network, aligned(self.theta))
        self._layers = self._start
        self._velocity = torch.empty_like(self.theta)
        self._paces = layer_views(network, self._velocity)
        self._taken = 0
        direction = lane.algorithm.direction
        self._affine = direction if type(direction) is Affine else None
        self._shift: Tensor | None = None
        if self._affine is not None and self._affine.shift is not None:
            self._shift = self._affine.shift(lane.shared, client)
        self._frozen = {
            name: layer_views(network, aligned(anchor.theta))
            for name, anchor in lane.algorithm.anchors(lane.shared, client).items()
        }
        self._at_start: Tensor | None = None
        self._seen = 0

    def step(self, batch: _Batch) -> None:
        """Make one step of heavy-ball momentum along the algorithm's direction."""
        if self.lane.algorithm.start_gradient:
            self._add_start_gradient(batch)
        self._move(batch)
        if self._taken:
            self.theta.sub_(self._velocity, alpha=self.lane.lr)
        else:
            self.theta = torch.sub(self.theta, self._velocity, alpha=self.lane.lr)
            self._layers = layer_views(self.network, self.theta)
        if self.recipe.radius is not None:
            self.theta.copy_(vector.project(self.theta, self.recipe.radius))
        self._taken += 1

    def mean_start_gradient(self) -> Tensor | None:
        """Return the gradient at the broadcast model over all mini-batches, if it is asked for."""
        if not self.lane.algorithm.start_gradient:
            return None
        if self._at_start is None:
            return torch.zeros_like(self.theta)
        return self._at_start / self._seen

    def _move(self, batch: _Batch) -> None:
        """Give the velocity its next value: momentum times the old one, plus the direction."""
        shared, keep = self.lane.shared, self.recipe.momentum if self._taken else 0.0
        if self._affine is None:
            gradient = torch.empty_like(self._velocity)
            self._add_gradient(self._layers, batch, layer_views(self.network, gradient), 0.0)
            direction = self.lane.algorithm.direction(gradient, self.theta, shared, self.client)
            if self._taken:
                self._velocity.mul_(keep).add_(direction)
            else:
                self._velocity.copy_(direction)
            return
        self._add_gradient(self._layers, batch, self._paces, keep)
        if self._shift is not None:
            self._velocity.add_(self._shift)
        if self._affine.pull and self._taken:
            self._velocity.add_(self.theta - shared.theta, alpha=self._affine.pull)

    def _add_start_gradient(self, batch: _Batch) -> None:
        gradient = torch.empty_like(self._velocity)
        self._add_gradient(self._start, batch, layer_views(self.network, gradient), 0.0)
        count = len(batch.y)
        if self._at_start is None:
            self._at_start = torch.zeros_like(gradient)
        self._at_start.add_(gradient, alpha=count)
        self._seen += count

    def _add_gradient(
        self,
        layers: Sequence[LayerViews],
        batch: _Batch,
        into: Sequence[LayerViews],
        keep: float,
    ) -> None:
        """Make ``into`` the gradient of the batch's loss, plus ``keep`` times what it was."""
        passed = forward(self.network, layers, batch.x, batch.noise)

        def anchor(name: str) -> Output:
            return forward(self.network, self._frozen[name], batch.x, None).output

        compared = Compared(batch.y, 1 / len(batch.y), tuple(self._frozen), anchor, self.client)
        slope = slopes(self.lane.algorithm.objective, passed.output, compared)
        add_gradient(self.network, layers, passed, slope, into, keep)


def aligned(theta: Theta) -> Theta:
    """Return a vector that begins where torch's own do, a copy of one that does not.

    A product may take another order of summation for another address.
    """
    return theta if theta.data_ptr() % ALIGNED == 0 else theta.clone()
