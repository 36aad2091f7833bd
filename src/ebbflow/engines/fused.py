"""Softmax regression by the fused kernel: all local steps of all lanes in one C call.

A device's numbers do not depend on what is trained beside it. Uploads are added up in leaves of
neighbouring devices, and the leaves in order (`leaves`): neither other lanes nor the number of
workers change a bit of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

import torch
from torch import Tensor
from torch.func import vmap

from ebbflow.core.algorithm import (
    Affine,
    LocalRun,
    Upload,
    add_up,
    combine,
    cross_entropy,
    weighted_upload,
)
from ebbflow.core.local import Cohort, Lane, Recipe, Trained, stacked, states_of, step_sum
from ebbflow.core.objectives import Contrast, Distillation
from ebbflow.core.types import Examples, Model, State
from ebbflow.engines import native
from ebbflow.engines.leaves import LEAF, LeafStretch


def why_no_kernel(model: Model, examples: Examples) -> str:
    """Return why there is no kernel for this model, data and machine; nothing if there is one."""
    if not model.hints.linear:
        return f"there is no kernel for the model {model.name}"
    if examples.x.device.type != "cpu":
        return "the kernel computes on the CPU"
    if (
        examples.pixels is not None
        or examples.x.dtype != torch.float32
        or not (examples.x.is_contiguous() and examples.y.is_contiguous())
    ):
        return "the kernel reads contiguous float32 samples"
    # The kernel checks no bounds: a label beyond the model's classes is left to torch to refuse.
    if not 0 <= int(examples.y.min()) <= int(examples.y.max()) < model.layout.shapes[-1][0]:
        return "there are labels beyond the model's classes"
    if native.library() is None:
        return "the kernel was not built for this machine"
    return ""


class Fused:
    """Trains lanes whose algorithms have a form that the kernel computes."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.kernel = native.Kernel(model, examples, recipe)
        self.momentum = recipe.momentum

    @staticmethod
    def refusal(lane: Lane) -> str:
        """Return why the kernel cannot train the lane; nothing if it can."""
        algorithm = lane.algorithm
        objective = algorithm.objective
        if isinstance(objective, Distillation):
            objective = objective.base
        if lane.shared.theta.dtype != torch.float32:
            return f"the model is {lane.shared.theta.dtype}"
        if not isinstance(algorithm.direction, Affine):
            return "direction is not Affine"
        if isinstance(objective, Contrast):
            objective = objective.base
        if objective is not cross_entropy:
            return "the kernel does not know the objective"
        return "start_gradient is asked for" if algorithm.start_gradient else ""

    def leaves(
        self, pool: Executor, lanes: Sequence[Lane], cohort: Cohort
    ) -> Iterator[LeafStretch]:
        """Yield the cohort's leaves, each trained in one call."""
        places = range(len(cohort.devices))
        leaves = [places[at : at + LEAF] for at in range(0, len(places), LEAF)]
        return pool.map(lambda leaf: self._leaf(lanes, cohort, leaf), leaves)

    def _leaf(self, lanes: Sequence[Lane], cohort: Cohort, leaf: range) -> LeafStretch:
        devices = [cohort.devices[place] for place in leaf]
        batches = [cohort.batches[place] for place in leaf]
        states = [states_of(lane, devices) for lane in lanes]
        thetas = self.kernel.train(lanes, states, batches)
        samples = torch.tensor([float(cohort.weight(place)) for place in leaf])
        steps = [len(own) for own in batches]
        trained = [
            self._sent(lane, devices, own, theta, samples, steps)
            for lane, own, theta in zip(lanes, states, thetas, strict=True)
        ]
        sums, after = zip(*trained, strict=True)
        return LeafStretch(tuple(range(len(lanes))), [[each] for each in sums], list(after))

    def _sent(
        self,
        lane: Lane,
        devices: Sequence[int],
        states: Sequence[State],
        theta: Tensor,
        samples: Tensor,
        steps: Sequence[int],
    ) -> Trained:
        """Return the sum of what devices send whose training ended at ``theta [devices, P]``."""
        shared, algorithm = lane.shared, lane.algorithm
        if algorithm.upload is weighted_upload:
            upload = Upload(
                delta=samples @ (theta - shared.theta),
                buffers=samples.sum() * shared.buffers,
                samples=samples.sum(),
                devices=samples.new_tensor(len(devices)),
                extras={},
            )
            return upload, dict(zip(devices, states, strict=True))
        total: Upload | None = None
        after: dict[int, State] = {}
        for part, made in _alike(steps):

            def one(
                own: Tensor, client: State, count: Tensor, made: int = made
            ) -> tuple[Upload, State]:
                effective = step_sum(made, self.momentum)
                run = LocalRun(own, shared.buffers, made, effective, lane.lr, count)
                return algorithm.upload(shared, client, run)

            uploads, clients = vmap(one)(theta[part], stacked(states[part]), samples[part])
            for row, device in enumerate(devices[part]):
                total = add_up(total, combine(lambda field, row=row: field[row], uploads))
                after[device] = {name: value[row] for name, value in clients.items()}
        assert total is not None
        return total, after


def _alike(steps: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Yield runs of neighbouring devices that made equally many steps, and how many.

    >>> list(_alike([5, 5, 3]))
    [(slice(0, 2, None), 5), (slice(2, 3, None), 3)]
    """
    ends = [i for i in range(1, len(steps)) if steps[i] != steps[i - 1]]
    for first, last in zip([0, *ends], [*ends, len(steps)], strict=True):
        yield slice(first, last), steps[first]
