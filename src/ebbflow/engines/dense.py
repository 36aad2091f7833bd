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

import numpy as np
import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Affine, LocalRun, Upload, cross_entropy, weighted_upload
from ebbflow.core.batching import Feed, first
from ebbflow.core.evaluate import Tally, tally, tested_rows
from ebbflow.core.local import Cohort, Lane, Recipe, step_sum
from ebbflow.core.slopes import Compared, slopes
from ebbflow.core.types import (
    Buffers,
    DenseNetwork,
    Examples,
    Gradient,
    Indices,
    Linear,
    Model,
    ModelState,
    Output,
    State,
    Theta,
)
from ebbflow.engines.dense_passes import DenseBatch, KernelPasses, Passes, TorchPasses
from ebbflow.engines.leaves import LeafStretch, leaf_sums
from ebbflow.engines.native.dense import (
    DenseKernel,
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
    inputs = _layers(network)[0].inputs
    flat = network.flattens or examples.x.dim() == 2
    if not flat or math.prod(examples.x.shape[1:]) != inputs:
        return f"the samples are no rows of {inputs} numbers"
    return ""


def _layers(network: DenseNetwork) -> list[Linear]:
    return [stage for stage in network.stages if isinstance(stage, Linear)]


_Batches = Callable[[int], DenseBatch]
"""The mini-batch of a step, by the step's number."""


class DenseLayers:
    """Trains the devices of a cohort in every lane; see the module's text."""

    def __init__(self, model: Model, feed: Feed, recipe: Recipe, *, native: bool = True) -> None:
        assert model.hints.dense is not None
        network = model.hints.dense
        examples = feed.examples
        self.feed = feed
        self._task = model.task
        self._parameters, self._buffered = model.layout.total, model.buffer_layout.total
        self.recipe = recipe
        # Rows that are ready are gathered as they lie in the data; others are made by the feed.
        plain = examples.pixels is None and examples.x.is_contiguous()
        self._rows = examples.x.flatten(1) if plain else None
        self._dtype = torch.float32 if examples.pixels is not None else examples.x.dtype
        layers = kernel_layers(network) if native and library() is not None else None
        self.passes: Passes = TorchPasses(network)
        if layers is not None and self._dtype == torch.float32:
            self.passes = KernelPasses(network, layers, feed.noise[0] if feed.noise else 0)
        # Of the last layer: a module need not name its layers in the order in which they are used.
        classes = _layers(network)[-1].outputs + network.zero_first
        self._classes = torch.eye(classes, dtype=self._dtype) if examples.labelled else None
        self._kernel = self._kernel_of_labels(classes)

    def _kernel_of_labels(self, classes: int) -> DenseKernel | None:
        """Return the kernel, if it can make all steps of a device at once from rows and labels."""
        passes, y = self.passes, self.feed.examples.y
        if (
            not isinstance(passes, KernelPasses)
            or passes.zero_first
            or self._rows is None
            or self._classes is None
            or self.recipe.radius is not None
            or y.dtype != torch.int64
            or not y.is_contiguous()
        ):
            return None
        # The kernel checks no bounds: a label that the model does not know is torch's to refuse.
        known = len(y) > 0 and 0 <= int(y.min()) <= int(y.max()) < classes
        return passes.kernel if known else None

    def refusal(self, lane: Lane) -> str:
        """Return why the lane cannot be trained here; nothing if it can."""
        return self._misfit(ModelState(lane.shared.theta, lane.shared.buffers))

    def _misfit(self, model: ModelState) -> str:
        """Return why the passes cannot read a model; the kernel checks neither bounds nor types."""
        parts = (("parameters", self._parameters), ("numbers in buffers", self._buffered))
        for part, (what, count) in zip(model, parts, strict=True):
            if count and part.dtype != self._dtype:
                return f"the model is {part.dtype} and the samples are {self._dtype}"
            if part.shape != (count,):
                return f"the model has {part.numel()} {what} instead of {count}"
        return ""

    def counting(
        self, models: Sequence[ModelState], test: Examples
    ) -> Callable[[ModelState, range], Tally] | None:
        """Return what counts the rows of a test set with a model; None if the kernel cannot."""
        passes = self.passes
        kind = torch.float32 if test.pixels is not None else test.x.dtype
        if not isinstance(passes, KernelPasses) or kind != torch.float32 or test.x.is_cuda:
            return None
        if any(map(self._misfit, models)):
            return None
        if math.prod(test.x.shape[1:]) != passes.kernel.inputs:
            return None

        def counted(model: ModelState, rows: range) -> Tally:
            x, y = tested_rows(test, rows)
            outputs = passes.tested(*model, x.flatten(1))
            return tally(self._task, outputs, y)

        return counted

    def leaves(
        self, pool: Executor, windows: Iterable[range], lanes: Sequence[Lane], cohort: Cohort
    ) -> Iterator[LeafStretch]:
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
        device, weight = cohort.devices[place], cohort.weight(place)
        runs = [_LocalSteps(self.passes, self.recipe, lane, device) for lane in lanes]
        for model in (model for run in runs for model in run.frozen.values()):
            if misfit := self._misfit(model):
                raise ValueError(f"of a frozen model: {misfit}")
        at_once = [run for run in runs if self._kernel is not None and run.by_labels]
        noise: Tensor | None = None
        if rows and self._rows is not None:
            like = torch.empty(0, dtype=self._dtype)
            noise = self.feed.noise_of_steps(held, place, like)
        if at_once and rows:
            self._all_steps(at_once, rows, noise)
        one_by_one = [run for run in runs if run not in at_once]
        batches: _Batches = partial(self._batch, held, place, noise)
        if len(one_by_one) > 1 and sum(map(len, rows)) * self.feed.sample_bytes <= KEPT_BYTES:
            batches = [batches(step) for step in range(len(rows))].__getitem__
        for run in one_by_one:
            for step in range(len(rows)):
                run.step(batches(step))
        return [run.sent(len(rows), weight) for run in runs]

    def _all_steps(
        self, runs: Sequence[_LocalSteps], rows: Sequence[Indices], noise: Tensor | None
    ) -> None:
        assert self._kernel is not None and self._rows is not None
        motions = [run.motion() for run in runs]
        labels = self.feed.examples.y
        self._kernel.train(self._rows, labels, rows, noise, motions, self.recipe.momentum)
        for run, motion in zip(runs, motions, strict=True):
            assert motion.out is not None
            run.theta = motion.out

    def _batch(
        self, cohort: Cohort, place: int, noise_of_steps: Tensor | None, step: int
    ) -> DenseBatch:
        rows: Indices = cohort.batches[place][step]
        noise = None
        if self._rows is not None:
            if noise_of_steps is not None:
                before = sum(map(len, cohort.batches[place][:step]))
                noise = noise_of_steps[before : before + len(rows)]
            x = self.passes.inputs(self._rows, rows)
            y = self.feed.examples.y.index_select(0, torch.from_numpy(rows))
        else:
            like = torch.empty(0, dtype=self._dtype)
            made, y, _, noise = first(self.feed.batch(cohort, [place], step, len(rows), like))
            x = self.passes.inputs(made.flatten(1), np.arange(len(rows)))
        one_hot = None if self._classes is None else self._classes.index_select(0, y)
        return DenseBatch(x, y, one_hot, noise)


class _LocalSteps:
    """One device's local steps in one lane: the same steps as those of `core.local.train`."""

    def __init__(self, passes: Passes, recipe: Recipe, lane: Lane, device: int) -> None:
        self.passes = passes
        self.recipe = recipe
        self.lane = lane
        algorithm, shared = lane.algorithm, lane.shared
        client = lane.clients.get(device)
        self.client = algorithm.init_client(shared) if client is None else client
        self.theta: Theta = shared.theta
        self.buffers = shared.buffers.clone()
        self._start = aligned(self.theta)
        self._velocity = torch.empty_like(self._start)
        self._taken = 0
        direction = algorithm.direction
        self._affine = direction if type(direction) is Affine else None
        self._shift: Tensor | None = None
        if self._affine is not None and self._affine.shift is not None:
            self._shift = self._affine.shift(shared, self.client)
        self.frozen = {
            name: ModelState(*map(aligned, anchor))
            for name, anchor in algorithm.anchors(shared, self.client).items()
        }
        self._at_start: Tensor | None = None
        self._seen = 0

    @property
    def by_labels(self) -> bool:
        """Whether the steps follow from labels alone, by cross-entropy and an affine direction."""
        algorithm = self.lane.algorithm
        simple = algorithm.objective is cross_entropy and not algorithm.start_gradient
        return simple and self._affine is not None

    def motion(self) -> Motion:
        """Return how theta moves in the next step; its new value goes to ``out``."""
        assert self._affine is not None
        # A device's theta is a copy as soon as a step changes it.
        now, out = self._start, torch.empty_like(self._start)
        keep = 0.0
        if self._taken:
            now, out, keep = self.theta, self.theta, self.recipe.momentum
        vectors = (now, self._start, self._shift, self._velocity, out)
        return Motion(*vectors, keep, self.lane.lr, self._affine.pull, self.buffers)

    def step(self, batch: DenseBatch) -> None:
        """Make one step of heavy-ball momentum along the algorithm's direction."""
        if self.lane.algorithm.start_gradient:
            self._add_start_gradient(batch)
        if self._affine is not None:
            motion = self.motion()
            self._pass(batch, motion, self.buffers)
            assert motion.out is not None
            self.theta = motion.out
        else:
            self._turn(batch)
        if self.recipe.radius is not None:
            self.theta.copy_(vector.project(self.theta, self.recipe.radius))
        self._taken += 1

    def sent(self, steps: int, weight: float) -> tuple[Upload, State]:
        """Return what the device uploads after its steps, and what it remembers."""
        shared, upload = self.lane.shared, self.lane.algorithm.upload
        samples = torch.tensor(weight).to(shared.theta)
        if upload is weighted_upload and steps:
            # Nobody keeps the local model: its memory becomes the displacement's.
            sent = Upload(
                delta=self.theta.sub_(shared.theta).mul_(samples),
                buffers=samples * self.buffers,
                samples=samples,
                devices=torch.ones_like(samples),
                extras={},
            )
            return sent, self.client
        run = LocalRun(
            self.theta,
            self.buffers,
            steps,
            step_sum(steps, self.recipe.momentum),
            self.lane.lr,
            samples,
            self.mean_start_gradient(),
        )
        return upload(shared, self.client, run)

    def mean_start_gradient(self) -> Tensor | None:
        """Return the gradient at the broadcast model over all mini-batches, if it is asked for."""
        if not self.lane.algorithm.start_gradient:
            return None
        if self._at_start is None:
            return torch.zeros_like(self.theta)
        return self._at_start / self._seen

    def _turn(self, batch: DenseBatch) -> None:
        """Make a step along a direction that the algorithm computes from the gradient."""
        now = self.theta if self._taken else self._start
        gradient = self._gradient(batch, now, self.buffers)
        shared = self.lane.shared
        direction = self.lane.algorithm.direction(gradient, now, shared, self.client)
        if self._taken:
            self._velocity.mul_(self.recipe.momentum).add_(direction)
            self.theta.sub_(self._velocity, alpha=self.lane.lr)
        else:
            self._velocity.copy_(direction)
            self.theta = torch.sub(now, self._velocity, alpha=self.lane.lr)

    def _add_start_gradient(self, batch: DenseBatch) -> None:
        # What that does to running statistics is forgotten.
        passing = self.lane.shared.buffers.clone()
        gradient, count = self._gradient(batch, self._start, passing), len(batch.y)
        if self._at_start is None:
            self._at_start = torch.zeros_like(gradient)
        self._at_start.add_(gradient, alpha=count)
        self._seen += count

    def _gradient(self, batch: DenseBatch, theta: Theta, buffers: Buffers) -> Gradient:
        gradient = torch.empty_like(theta)
        self._pass(batch, Motion(theta, theta, None, gradient, None, 0.0, 0.0, 0.0), buffers)
        return gradient

    def _pass(self, batch: DenseBatch, motion: Motion, buffers: Buffers) -> None:
        """Go forward and back once, and move along the gradient."""
        output, kept = self.passes.forward(motion.theta, buffers, batch, train=True)

        def anchor(name: str) -> Output:
            return self.passes.forward(*self.frozen[name], batch, train=False)[0]

        weight, names = 1 / len(batch.y), tuple(self.frozen)
        compared = Compared(batch.y, batch.one_hot, weight, names, anchor, self.client)
        slope = slopes(self.lane.algorithm.objective, output, compared)
        self.passes.move(batch, kept, slope, motion)


def aligned(vector: Tensor) -> Tensor:
    """Return a vector that lies as torch's own do, a copy of one that does not.

    Its entries follow one another, as the kernel reads them, and it begins at such an address: a
    product may take another order of summation for another one.
    """
    if vector.is_contiguous() and vector.data_ptr() % ALIGNED == 0:
        return vector
    return vector.clone(memory_format=torch.contiguous_format)
