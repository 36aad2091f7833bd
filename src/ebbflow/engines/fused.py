"""Softmax regression by the fused kernel: all local steps of all lanes in one C call.

A device's numbers do not depend on what is trained beside it. Uploads are added up in leaves of
neighbouring devices, and the leaves in order (`leaves`): neither other lanes nor the number of
workers change a bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

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
from ebbflow.engines.ahead import in_turn
from ebbflow.engines.leaves import LEAF, LeafStretch

CALLS = 4  # of each worker in a round, at least
AHEAD = 3  # calls for each worker that are under way or wait to be added up
CALL_BYTES = 3 * 2**20  # of the models that a call trains, at most, if it has more than one leaf


def why_no_kernel(model: Model, examples: Examples) -> str:
    """Return why there is no kernel for this model, data and machine; nothing if there is one."""
    if not model.hints.linear:
        return f"there is no kernel for the model {model.name}"
    if examples.x.device.type != "cpu":
        return "the kernel computes on the CPU"
    if unreadable := _unreadable(model, examples):
        return unreadable
    if native.library() is None:
        return "the kernel was not built for this machine"
    return ""


def _unreadable(model: Model, examples: Examples) -> str:
    """Return why the kernel, which checks no bounds, cannot read the data; nothing if it can."""
    x, y = examples.x, examples.y
    classes, inputs = model.layout.shapes[0]
    lie_as_read = x.is_contiguous() and y.is_contiguous()
    if examples.pixels is not None or x.dtype != torch.float32 or not lie_as_read:
        return "the kernel reads contiguous float32 samples"
    if math.prod(x.shape[1:]) != inputs:
        return f"the samples are no rows of {inputs} numbers"
    if not examples.labelled or y.dtype != torch.int64:
        return "the samples are not of one class each"
    if not 0 <= int(y.min()) <= int(y.max()) < classes:  # torch refuses such a label
        return "there are labels beyond the model's classes"
    return ""


class Fused:
    """Trains lanes whose algorithms have a form that the kernel computes."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.kernel = native.Kernel(model, examples, recipe)
        self.momentum = recipe.momentum

    def refusal(self, lane: Lane) -> str:
        """Return why the kernel cannot train the lane; nothing if it can."""
        algorithm, theta = lane.algorithm, lane.shared.theta
        if theta.dtype != torch.float32:
            return f"the model is {theta.dtype}"
        if theta.shape != (self.kernel.parameters,):  # the kernel checks no bounds
            return f"the model has {theta.numel()} parameters instead of {self.kernel.parameters}"
        if type(algorithm.direction) is not Affine:  # one made of it may compute something else
            return "direction is not Affine"
        if algorithm.start_gradient:
            return "start_gradient is asked for"
        return _unknown(lane)

    def leaves(
        self, pool: Executor, workers: int, lanes: Sequence[Lane], cohort: Cohort
    ) -> Iterator[LeafStretch]:
        """Yield the cohort's leaves, a few of them trained in each call."""
        places = range(len(cohort.devices))
        count = LEAF * self._leaves_in_call(workers, len(lanes), len(places))
        calls = [places[at : at + count] for at in range(0, len(places), count)]
        return in_turn(pool, partial(self._stretch, lanes, cohort), calls, AHEAD * workers)

    def _leaves_in_call(self, workers: int, lanes: int, devices: int) -> int:
        """Return how many leaves a call trains.

        Each call costs some time; every worker has a few, so that none waits long for another.
        """
        fair = devices // (LEAF * CALLS * workers)
        room = CALL_BYTES // (4 * self.kernel.parameters * LEAF * lanes)
        return max(1, min(fair, room))

    def _stretch(self, lanes: Sequence[Lane], cohort: Cohort, places: range) -> LeafStretch:
        """Train the devices at some places, and add up those of each leaf."""
        devices = [cohort.devices[place] for place in places]
        batches = [cohort.batches[place] for place in places]
        states = [states_of(lane, devices) for lane in lanes]
        thetas = self.kernel.train(lanes, states, batches)
        samples = torch.tensor([float(cohort.weight(place)) for place in places])
        steps = [len(own) for own in batches]
        sums: list[list[Upload]] = [[] for _ in lanes]
        after: list[dict[int, State]] = [{} for _ in lanes]
        for at in range(0, len(places), LEAF):
            leaf = slice(at, at + LEAF)
            for number, (lane, own, theta) in enumerate(zip(lanes, states, thetas, strict=True)):
                total, known = self._sent(
                    lane, devices[leaf], own[leaf], theta[leaf], samples[leaf], steps[leaf]
                )
                sums[number].append(total)
                after[number].update(known)
        return LeafStretch(tuple(range(len(lanes))), sums, after)

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


def _unknown(lane: Lane) -> str:
    """Return why the kernel cannot compute the lane's objective; nothing if it can."""
    objective = lane.algorithm.objective
    # By type: what is made of one of these records may compute something else.
    if type(objective) is Distillation:
        if not _same_for_all(lane, "teacher"):
            return "devices may have teachers of their own"
        objective = objective.base
    if type(objective) is Contrast:
        if not _same_for_all(lane, "global", lane.shared.theta):
            return "the global model is not the one that devices start from"
        objective = objective.base
    return "" if objective is cross_entropy else "the kernel does not know the objective"


def _same_for_all(lane: Lane, name: str, theta: Tensor | None = None) -> bool:
    """Whether a frozen model is one and the same, whatever a device remembers.

    If ``theta`` is given, it has to be that one.
    """
    algorithm, shared = lane.algorithm, lane.shared
    for _ in range(2):
        client = {key: value.clone() for key, value in algorithm.init_client(shared).items()}
        found = algorithm.anchors(shared, client).get(name)
        if found is None or (theta is not None and found.theta is not theta):
            return False
        theta = found.theta
    return True


def _alike(steps: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Yield runs of neighbouring devices that made equally many steps, and how many.

    >>> list(_alike([5, 5, 3]))
    [(slice(0, 2, None), 5), (slice(2, 3, None), 3)]
    """
    ends = [i for i in range(1, len(steps)) if steps[i] != steps[i - 1]]
    for first, last in zip([0, *ends], [*ends, len(steps)], strict=True):
        yield slice(first, last), steps[first]
