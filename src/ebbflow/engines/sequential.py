"""The reference engine: one device after another, nothing clever, errors that say where."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ebbflow.core.algorithm import Algorithm, Broadcast, Upload, combine
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.local import Batch, Cohort, Lane, Recipe, Trained, train
from ebbflow.core.types import Examples, Indices, Model, State


class Sequential:
    """Train the devices of a cohort in order and add up what they send."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.model = model
        self.examples = examples
        self.recipe = recipe

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the devices' new states."""
        return [self._lane(lane, cohort) for lane in lanes]

    def close(self) -> None:
        """Nothing to release."""

    def _lane(self, lane: Lane, cohort: Cohort) -> Trained:
        total: Upload | None = None
        clients: dict[int, State] = {}
        for device, rows, samples in zip(
            cohort.devices, cohort.batches, cohort.samples, strict=True
        ):
            where = f"session {cohort.session}, round {cohort.round}, device {device}"
            client = lane.clients.get(device)
            if client is None:
                client = lane.algorithm.init_client(lane.shared.theta)
            upload, clients[device] = self._device(
                lane.algorithm, lane.shared, client, rows, lane.lr, samples, where
            )
            total = upload if total is None else combine(torch.add, total, upload)
        if total is None:
            raise EbbflowError(f"session {cohort.session}, round {cohort.round}: nobody takes part")
        return total, clients

    def _device(
        self,
        algorithm: Algorithm,
        shared: Broadcast,
        client: State,
        rows: Sequence[Indices],
        lr: float,
        samples: int,
        where: str,
    ) -> tuple[Upload, State]:
        step = 1
        if lr > torch.finfo(shared.theta.dtype).max:
            raise TrainingError(
                f"{where}, step 1: the rate {lr:g} is beyond {shared.theta.dtype}; lower lr.initial"
            )

        def watch(theta: Tensor) -> None:
            nonlocal step
            if not bool(torch.isfinite(theta).all()):
                raise TrainingError(
                    f"{where}, step {step}: the local model is no longer finite; lower lr.initial "
                    f"(now {lr:g} in this round) or set local.radius"
                )
            step += 1

        try:
            return train(
                self.model,
                algorithm,
                self.recipe,
                shared,
                client,
                [self._batch(step_rows, shared.theta) for step_rows in rows],
                lr,
                torch.tensor(samples, dtype=shared.theta.dtype, device=shared.theta.device),
                watch,
            )
        except EbbflowError:
            raise
        except Exception as error:
            place = f"step {step}" if step <= len(rows) else "after the last step"
            raise TrainingError(f"{where}, {place}: {error}") from error

    def _batch(self, rows: Indices, theta: Tensor) -> Batch:
        at = torch.from_numpy(rows).to(self.examples.y.device)
        weights = torch.full((len(rows),), 1 / len(rows), dtype=theta.dtype, device=theta.device)
        return Batch(self.examples.x[at], self.examples.y[at], weights)
