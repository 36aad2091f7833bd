"""What all methods share under one seed, and the draws that they share in every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebbflow.config import Config, StepCount
from ebbflow.core.algorithm import Population
from ebbflow.core.local import Cohort, Recipe
from ebbflow.core.rng import generator
from ebbflow.core.types import Dataset, Model, ModelState, Session
from ebbflow.data.batches import local_batches
from ebbflow.data.schedule import participants
from ebbflow.history.retention import Retention


@dataclass(frozen=True)
class World:
    """All that methods share under one seed: data, model, initial weights, who comes and goes."""

    config: Config
    seed: int
    dataset: Dataset
    model: Model
    initial: ModelState
    sessions: Sequence[Session]
    retention: Retention

    @property
    def recipe(self) -> Recipe:
        """How every device steps."""
        return Recipe(self.config.local.momentum, self.config.local.radius)


def population(session: Session) -> Population:
    """Return how many devices and samples a session has."""
    return Population(len(session.devices), sum(map(len, session.shards.values())))


def draw_participants(
    world: World, session: Session, t: int, purpose: str, share: float | int | None
) -> tuple[int, ...]:
    """Draw A^(s,t) (or A_grad) by name."""
    sizes = [len(session.shards[device]) for device in session.devices]
    draw = generator(world.seed, purpose, session.index, t)
    return participants(draw, session.devices, sizes, share, world.config.participation.weighting)


def draw_cohort(
    world: World,
    session: Session,
    t: int,
    devices: Sequence[int],
    steps: StepCount,
    batch: int,
    purpose: str,
) -> Cohort:
    """Draw every participant's mini-batches by name."""
    batches = []
    for device in devices:
        draw = generator(world.seed, purpose, session.index, t, device)
        count = steps if isinstance(steps, int) else int(draw.integers(steps[0], steps[1] + 1))
        shard = session.shards[device]
        drawn = local_batches(draw, shard, count, batch, world.config.local.rule)
        # A single sample has no batch statistics: a last batch of one is left out.
        least = 2 if world.model.batch_statistics else 1
        batches.append(tuple(rows for rows in drawn if len(rows) >= least))
    samples = tuple(len(session.shards[device]) for device in devices)
    names = (world.seed, purpose)
    return Cohort(session.index, t, tuple(devices), tuple(batches), samples, names)
