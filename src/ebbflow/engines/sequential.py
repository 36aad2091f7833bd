"""The reference engine: one device after another, nothing clever, errors that say where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ebbflow.core.algorithm import Upload, add_up
from ebbflow.core.batching import Feed
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.evaluate import Score, evaluate
from ebbflow.core.local import Cohort, Lane, Recipe, Trained, train
from ebbflow.core.rng import torch_generator
from ebbflow.core.types import Examples, Model, ModelState, State
from ebbflow.engines.texts.symbolic import with_whole_states


class Sequential:
    """Train the devices of a cohort in order and add up what they send."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.model = model
        self.feed = Feed(examples, model)
        self.recipe = recipe

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the devices' new states."""
        lanes = with_whole_states(lanes, cohort, self.model, self.feed.examples)
        return [self._lane(lane, cohort) for lane in lanes]

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models, at once."""
        scores = [evaluate(self.model, model, test) for model in models]
        return lambda: scores

    def close(self) -> None:
        """Nothing to release."""

    def _lane(self, lane: Lane, cohort: Cohort) -> Trained:
        total: Upload | None = None
        clients: dict[int, State] = {}
        for place, device in enumerate(cohort.devices):
            client = lane.clients.get(device)
            if client is None:
                client = lane.algorithm.init_client(lane.shared)
            upload, clients[device] = self._device(lane, client, cohort, place)
            total = add_up(total, upload)
        if total is None:
            raise EbbflowError(f"session {cohort.session}, round {cohort.round}: nobody takes part")
        return total, clients

    def _device(
        self, lane: Lane, client: State, cohort: Cohort, place: int
    ) -> tuple[Upload, State]:
        theta, lr = lane.shared.theta, lane.lr
        cohort = cohort.held([place])
        where = f"session {cohort.session}, round {cohort.round}, device {cohort.devices[place]}"
        step = 1
        if lr > torch.finfo(theta.dtype).max:
            raise TrainingError(
                f"{where}, step 1: the rate {lr:g} is beyond {theta.dtype}; lower lr.initial"
            )

        def watch(iterate: Tensor) -> None:
            nonlocal step
            if not bool(torch.isfinite(iterate).all()):
                raise TrainingError(
                    f"{where}, step {step}: the local model is no longer finite; lower lr.initial "
                    f"(now {lr:g} in this round) or set local.radius"
                )
            step += 1

        try:
            batches = self.feed.steps(cohort, place, theta)
            samples = torch.tensor(cohort.weight(place)).to(theta)
            with self._own_draws(cohort, place):
                return train(
                    self.model,
                    lane.algorithm,
                    self.recipe,
                    lane.shared,
                    client,
                    batches,
                    lr,
                    samples,
                    watch,
                )
        except EbbflowError:
            raise
        except Exception as error:  # whatever a model or hook raises: say where it was
            at = f"step {step}" if step <= len(cohort.batches[place]) else "after the last step"
            raise TrainingError(f"{where}, {at}: {error}") from error

    @contextmanager
    def _own_draws(self, cohort: Cohort, place: int) -> Iterator[None]:
        """Let random layers of the user's own draw by name, too, and disturb nobody."""
        names = (*cohort.names, "layers", cohort.session, cohort.round, cohort.devices[place])
        device = self.feed.examples.x.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(torch_generator(*names).initial_seed())
            yield
