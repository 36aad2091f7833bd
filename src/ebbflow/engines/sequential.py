"""The reference engine: trains one device after another and says where training went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Upload, add_up, mean_state
from ebbflow.core.batching import Feed
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.evaluate import Score, evaluate
from ebbflow.core.local import Cohort, Lane, Recipe, Route, Trained, train
from ebbflow.core.rng import torch_generator
from ebbflow.core.types import Examples, Model, ModelState, State
from ebbflow.engines.failures import failures_named, place_of


class Sequential:
    """Trains the devices of a cohort in order and adds up what they send."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.model = model
        self.feed = Feed(examples, model)
        self.recipe = recipe

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the devices' new states."""
        return [self._lane(lane, cohort) for lane in lanes]

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models, at once."""
        with failures_named(lambda: "evaluation"):
            scores = [evaluate(self.model, model, test) for model in models]
        return lambda: scores

    def mean_state(self, states: Sequence[State], samples: Sequence[int]) -> State:
        """Return the mean of device states, weighted by D_k."""
        return mean_state(states, samples)

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Do nothing: training looks at every step already."""

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return the only way there is here."""
        return Route("one device at a time", 'engine.kind = "sequential"')

    def close(self) -> None:
        """Nothing to release."""

    def _lane(self, lane: Lane, cohort: Cohort) -> Trained:
        total: Upload | None = None
        clients: dict[int, State] = {}
        for place, device in enumerate(cohort.devices):
            upload, clients[device] = self._device(lane, cohort, place)
            total = add_up(total, upload)
        if total is None:
            raise EbbflowError(f"{place_of(cohort)}: nobody takes part")
        return total, clients

    def _device(self, lane: Lane, cohort: Cohort, place: int) -> tuple[Upload, State]:
        theta, lr = lane.shared.theta, lane.lr
        cohort = cohort.held([place])
        device = cohort.devices[place]
        where = place_of(cohort, device)
        step = 1
        if lr > torch.finfo(theta.dtype).max:
            raise TrainingError(
                f"{where}, step 1: the rate {lr:g} is beyond {theta.dtype}; lower lr.initial"
            )

        def watch(iterate: Tensor) -> None:
            nonlocal step
            if not vector.all_finite(iterate):
                raise TrainingError(
                    f"{where}, step {step}: the local model is no longer finite; lower lr.initial "
                    f"(now {lr:g} in this round) or set local.radius"
                )
            step += 1

        def reached() -> str:
            done = step > len(cohort.batches[place])
            return f"{where}, after the last step" if done else f"{where}, step {step}"

        with failures_named(reached):
            client = lane.clients.get(device)
            if client is None:
                client = lane.algorithm.init_client(lane.shared)
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

    @contextmanager
    def _own_draws(self, cohort: Cohort, place: int) -> Iterator[None]:
        """Seed torch's generator by name for a model that draws from it, and restore it after."""
        names = (*cohort.names, "layers", cohort.session, cohort.round, cohort.devices[place])
        device = self.feed.examples.x.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(torch_generator(*names).initial_seed())
            yield
