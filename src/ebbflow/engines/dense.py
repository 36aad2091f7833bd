"""Dense networks with their gradient in closed form, one device after another on each worker.

What remains of a step are its matrix products: there is no graph, no gradient for the inputs, and
no copy of theta before a step has changed it. Mini-batches are gathered once for all lanes. The
products are those of the native kernel (`native.dense`), which moves the weights in the same pass,
or torch's. Every product is of one device in one lane, so that neither neighbours nor other lanes
nor workers change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Affine, LocalRun, Upload, weighted_upload
from ebbflow.core.batching import Feed, first
from ebbflow.core.dense import Passed, Slopes, add_gradient, forward, layer_views
from ebbflow.core.local import Cohort, Lane, Recipe, step_sum
from ebbflow.core.slopes import Compared, slopes
from ebbflow.core.types import (
    DenseNetwork,
    Examples,
    Gradient,
    Indices,
    Linear,
    Model,
    Output,
    State,
    Theta,
)
from ebbflow.engines.leaves import Stretch, leaf_sums
from ebbflow.engines.native.dense import (
    DenseKernel,
    KernelLayers,
    LaidOut,
    Motion,
    kernel_layers,
    library,
)

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
    """A mini-batch: inputs in the form that the passes read; every sample counts alike."""

    x: Tensor | LaidOut
    y: Tensor
    one_hot: Tensor | None
    noise: Tensor | None


_Batches = Callable[[int], _Batch]
"""The mini-batch of a step, by the step's number."""


class _Passes(Protocol):
    """A network's forward pass, and a backward pass that moves theta."""

    def inputs(self, x: Tensor, rows: Indices) -> Tensor | LaidOut:
        """Return rows of ``x [., inputs]`` in the form that the passes read."""
        ...

    def forward(self, theta: Theta, batch: _Batch, *, train: bool) -> tuple[Output, Any]:
        """Return the outputs, and what the way back needs."""
        ...

    def move(self, batch: _Batch, kept: Any, slopes: Slopes, motion: Motion) -> None:
        """Move theta along the gradient of a forward pass at ``motion.theta``."""
        ...


class TorchPasses:
    """Passes by torch's products, of any dense network in any precision."""

    def __init__(self, network: DenseNetwork) -> None:
        self.network = network

    def inputs(self, x: Tensor, rows: Indices) -> Tensor:
        """Return the rows, one after another."""
        return x.index_select(0, torch.from_numpy(rows))

    def forward(self, theta: Theta, batch: _Batch, *, train: bool) -> tuple[Output, Passed]:
        """Return the outputs, and the values of all stages."""
        assert isinstance(batch.x, Tensor)
        layers, noise = layer_views(self.network, theta), batch.noise if train else None
        passed = forward(self.network, layers, batch.x, noise)
        return passed.output, passed

    def move(self, batch: _Batch, kept: Passed, slopes: Slopes, motion: Motion) -> None:
        """Let the products add to the velocity, and step along it."""
        theta, start, shift, velocity, out, keep, rate, pull = motion
        layers, places = layer_views(self.network, theta), layer_views(self.network, velocity)
        add_gradient(self.network, layers, kept, slopes, places, keep)
        if shift is not None:
            velocity.add_(shift)
        if pull:
            velocity.add_(theta - start, alpha=pull)
        if out is not None:
            torch.sub(theta, velocity, alpha=rate, out=out)


class KernelPasses:
    """Passes by the native kernel, in float32."""

    def __init__(self, network: DenseNetwork, layers: KernelLayers) -> None:
        self.kernel = DenseKernel(layers)
        self.zero_first = network.zero_first

    def inputs(self, x: Tensor, rows: Indices) -> LaidOut:
        """Return the rows as the kernel lays them out."""
        return self.kernel.laid_out(x, rows)

    def forward(self, theta: Theta, batch: _Batch, *, train: bool) -> tuple[Output, Tensor]:
        """Return the outputs, and the values of all layers."""
        assert isinstance(batch.x, LaidOut)
        values, scores, features = self.kernel.forward(theta, batch.x)
        if self.zero_first:
            logits = torch.cat([torch.zeros_like(scores[:, :1]), scores], 1)
            return Output(logits, logits if features is scores else features), values
        return Output(scores, features), values

    def move(self, batch: _Batch, kept: Tensor, slopes: Slopes, motion: Motion) -> None:
        """Go back through all layers and move each of them on the way."""
        assert isinstance(batch.x, LaidOut)
        of_scores, of_features = slopes
        if of_features is not None and not self.kernel.features:
            of_scores, of_features = of_scores + of_features, None
        if self.zero_first:
            of_scores = of_scores[:, 1:]
        self.kernel.backward(batch.x, kept, of_scores, of_features, motion)


class DenseLayers:
    """Trains the devices of a cohort in every lane; see the module's text."""

    def __init__(self, model: Model, feed: Feed, recipe: Recipe, *, native: bool = True) -> None:
        assert model.hints.dense is not None
        network = model.hints.dense
        examples = feed.examples
        self.feed = feed
        self.recipe = recipe
        # Rows that are ready are gathered as they lie in the data; others are made by the feed.
        plain = examples.pixels is None and feed.noise is None and examples.x.is_contiguous()
        self._rows = examples.x.flatten(1) if plain else None
        self._dtype = torch.float32 if examples.pixels is not None else examples.x.dtype
        layers = kernel_layers(network) if native and library() is not None else None
        self.passes: _Passes = TorchPasses(network)
        if layers is not None and self._dtype == torch.float32:
            self.passes = KernelPasses(network, layers)
        classes = model.layout.shapes[-1][0] + network.zero_first
        self._classes = torch.eye(classes, dtype=self._dtype) if examples.labelled else None

    def refusal(self, lane: Lane) -> str:
        """Return why the lane cannot be trained here; nothing if it can."""
        if lane.shared.theta.dtype != self._dtype:
            return f"the model is {lane.shared.theta.dtype} and the samples are {self._dtype}"
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
        if len(lanes) > 1 and sum(map(len, rows)) * self.feed.sample_bytes <= KEPT_BYTES:
            batches = [batches(step) for step in range(len(rows))].__getitem__
        weight = cohort.weight(place)
        return [
            self._lane(lane, cohort.devices[place], batches, len(rows), weight) for lane in lanes
        ]

    def _batch(self, cohort: Cohort, place: int, step: int) -> _Batch:
        rows: Indices = cohort.batches[place][step]
        noise = None
        if self._rows is not None:
            x = self.passes.inputs(self._rows, rows)
            y = self.feed.examples.y.index_select(0, torch.from_numpy(rows))
        else:
            like = torch.empty(0, dtype=self._dtype)
            made, y, _, noise = first(self.feed.batch(cohort, [place], step, len(rows), like))
            x = self.passes.inputs(made.flatten(1), np.arange(len(rows)))
        one_hot = None if self._classes is None else self._classes.index_select(0, y)
        return _Batch(x, y, one_hot, noise)

    def _lane(
        self, lane: Lane, device: int, batches: _Batches, steps: int, weight: float
    ) -> tuple[Upload, State]:
        shared, algorithm = lane.shared, lane.algorithm
        client = lane.clients.get(device)
        if client is None:
            client = algorithm.init_client(shared)
        local = _LocalSteps(self.passes, self.recipe, lane, client)
        for step in range(steps):
            local.step(batches(step))
        samples = torch.tensor(weight).to(shared.theta)
        if algorithm.upload is weighted_upload and steps:
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

    def __init__(self, passes: _Passes, recipe: Recipe, lane: Lane, client: State) -> None:
        self.passes = passes
        self.recipe = recipe
        self.lane = lane
        self.client = client
        self.theta: Theta = lane.shared.theta
        self._start = aligned(self.theta)
        self._velocity = torch.empty_like(self._start)
        self._taken = 0
        direction = lane.algorithm.direction
        self._affine = direction if type(direction) is Affine else None
        self._shift: Tensor | None = None
        if self._affine is not None and self._affine.shift is not None:
            self._shift = self._affine.shift(lane.shared, client)
        self._frozen = {
            name: aligned(anchor.theta)
            for name, anchor in lane.algorithm.anchors(lane.shared, client).items()
        }
        self._at_start: Tensor | None = None
        self._seen = 0

    def step(self, batch: _Batch) -> None:
        """Make one step of heavy-ball momentum along the algorithm's direction."""
        if self.lane.algorithm.start_gradient:
            self._add_start_gradient(batch)
        # A device's theta is a copy as soon as a step changes it.
        now = self.theta if self._taken else self._start
        out = self.theta if self._taken else torch.empty_like(self._start)
        if self._affine is not None:
            keep = self.recipe.momentum if self._taken else 0.0
            pull = self._affine.pull if self._taken else 0.0
            self._pass(
                batch,
                Motion(
                    *(now, self._start, self._shift, self._velocity, out),
                    *(keep, self.lane.lr, pull),
                ),
            )
        else:
            self._turn(batch, now)
            torch.sub(now, self._velocity, alpha=self.lane.lr, out=out)
        if self.recipe.radius is not None:
            out.copy_(vector.project(out, self.recipe.radius))
        self.theta = out
        self._taken += 1

    def mean_start_gradient(self) -> Tensor | None:
        """Return the gradient at the broadcast model over all mini-batches, if it is asked for."""
        if not self.lane.algorithm.start_gradient:
            return None
        if self._at_start is None:
            return torch.zeros_like(self.theta)
        return self._at_start / self._seen

    def _turn(self, batch: _Batch, now: Theta) -> None:
        """Give the velocity its next value, along a direction that the algorithm computes."""
        gradient = self._gradient(batch, now)
        shared = self.lane.shared
        direction = self.lane.algorithm.direction(gradient, now, shared, self.client)
        if self._taken:
            self._velocity.mul_(self.recipe.momentum).add_(direction)
        else:
            self._velocity.copy_(direction)

    def _add_start_gradient(self, batch: _Batch) -> None:
        gradient, count = self._gradient(batch, self._start), len(batch.y)
        if self._at_start is None:
            self._at_start = torch.zeros_like(gradient)
        self._at_start.add_(gradient, alpha=count)
        self._seen += count

    def _gradient(self, batch: _Batch, theta: Theta) -> Gradient:
        gradient = torch.empty_like(theta)
        self._pass(batch, Motion(theta, theta, None, gradient, None, 0.0, 0.0, 0.0))
        return gradient

    def _pass(self, batch: _Batch, motion: Motion) -> None:
        """Go forward and back once, and move along the gradient."""
        output, kept = self.passes.forward(motion.theta, batch, train=True)

        def anchor(name: str) -> Output:
            return self.passes.forward(self._frozen[name], batch, train=False)[0]

        weight, names = 1 / len(batch.y), tuple(self._frozen)
        compared = Compared(batch.y, batch.one_hot, weight, names, anchor, self.client)
        slope = slopes(self.lane.algorithm.objective, output, compared)
        self.passes.move(batch, kept, slope, motion)


def aligned(theta: Theta) -> Theta:
    """Return a vector that begins where torch's own do, a copy of one that does not.

    A product may take another order of summation for another address.
    """
    return theta if theta.data_ptr() % ALIGNED == 0 else theta.clone()
