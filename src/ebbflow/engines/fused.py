"""Softmax regression by the fused kernel: every step of every lane without a word of Python.

A device's numbers are its own whatever runs beside it, and uploads are added in leaves of
neighbours, leaf by leaf: neither lanes nor workers change a bit.
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

LEAF = 4  # devices whose uploads are added up by themselves, whoever trains them


def fits(model: Model, examples: Examples) -> bool:
    """Whether there is a kernel for this model, this data and this machine."""
    return (
        model.linear
        and examples.pixels is None
        and examples.x.device.type == "cpu"
        and examples.x.dtype == torch.float32
        and examples.x.is_contiguous()
        and examples.y.is_contiguous()
        # The kernel looks at no bounds: a label beyond the model's classes is torch's to refuse.
        and 0 <= int(examples.y.min()) <= int(examples.y.max()) < model.layout.shapes[-1][0]
        and native.library() is not None
    )


class Fused:
    """Trains the lanes whose algorithms have the form that the kernel computes."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.kernel = native.Kernel(model, examples, recipe)
        self.momentum = recipe.momentum

    @staticmethod
    def takes(lane: Lane) -> bool:
        """Whether the lane's algorithm has a loss and a direction that the kernel knows."""
        algorithm = lane.algorithm
        objective = algorithm.objective
        if isinstance(objective, Distillation):
            objective = objective.base
        return (
            lane.shared.theta.dtype == torch.float32
            and isinstance(algorithm.direction, Affine)
            and (objective is cross_entropy or isinstance(objective, Contrast))
            and not algorithm.start_gradient
        )

    def __call__(self, pool: Executor, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        places = range(len(cohort.devices))
        leaves = [places[at : at + LEAF] for at in range(0, len(places), LEAF)]
        totals: list[Upload | None] = [None] * len(lanes)
        clients: list[dict[int, State]] = [{} for _ in lanes]
        for trained in pool.map(lambda leaf: self._leaf(lanes, cohort, leaf), leaves):
            for i, (upload, states) in enumerate(trained):
                totals[i] = add_up(totals[i], upload)
                clients[i].update(states)
        return [(total, states) for total, states in zip(totals, clients, strict=True) if total]

    def _leaf(self, lanes: Sequence[Lane], cohort: Cohort, leaf: range) -> list[Trained]:
        devices = [cohort.devices[place] for place in leaf]
        batches = [cohort.batches[place] for place in leaf]
        states = [states_of(lane, devices) for lane in lanes]
        thetas = self.kernel.train(lanes, states, batches)
        samples = torch.tensor([float(cohort.weight(place)) for place in leaf])
        steps = [len(own) for own in batches]
        return [
            self._sent(lane, devices, own, theta, samples, steps)
            for lane, own, theta in zip(lanes, states, thetas, strict=True)
        ]

    def _sent(
        self,
        lane: Lane,
        devices: Sequence[int],
        states: Sequence[State],
        theta: Tensor,
        samples: Tensor,
        steps: Sequence[int],
    ) -> Trained:
        """Return the sum of what devices send after training to ``theta [devices, P]``."""
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
    """Yield stretches of devices that made equally many steps, and how many.

    >>> list(_alike([5, 5, 3]))
    [(slice(0, 2, None), 5), (slice(2, 3, None), 3)]
    """
    ends = [i for i in range(1, len(steps)) if steps[i] != steps[i - 1]]
    for first, last in zip([0, *ends], [*ends, len(steps)], strict=True):
        yield slice(first, last), steps[first]
