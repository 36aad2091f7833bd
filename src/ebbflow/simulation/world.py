"""What all methods share under one seed, including the random draws of every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ebbflow.aggregation import AGGREGATIONS
from ebbflow.config.resolved import Config
from ebbflow.config.schema import StepCount
from ebbflow.core.aggregation import Aggregation
from ebbflow.core.algorithm import Population
from ebbflow.core.client_states import StateFile
from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import BatchDraws, Cohort, Recipe
from ebbflow.core.rng import generator
from ebbflow.core.types import Dataset, Indices, Model, ModelState, Session
from ebbflow.data.batches import draw_steps, local_batches
from ebbflow.data.schedule import certain_size, participants
from ebbflow.sessions.memory import SessionRules


@dataclass(frozen=True)
class World:
    """All that methods share under one seed: data, model, initial weights and sessions.

    ``states`` keeps the devices' states of every method; ``names[k]`` is what device k is called;
    ``warnings`` are sentences about data and weights that the user should read before trusting the
    results.
    """

    config: Config
    seed: int
    dataset: Dataset
    model: Model
    initial: ModelState
    sessions: Sequence[Session]
    rules: SessionRules
    states: StateFile
    names: Sequence[str] = ()
    warnings: tuple[str, ...] = ()

    def labels_before(self, session: Session) -> tuple[int, ...]:
        """Return the labels of the previous session."""
        return self.sessions[session.index - 2].labels if session.index > 1 else ()

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The rounds of each session."""
        return tuple(session.rounds for session in self.sessions)

    @property
    def smallest_batch(self) -> int:
        """The smallest mini-batch that is used: a single sample has no batch statistics."""
        return 2 if self.model.batch_statistics else 1

    @property
    def recipe(self) -> Recipe:
        """The momentum and the radius of every device's local steps."""
        return Recipe(self.config.local.momentum, self.config.local.radius)

    @cached_property
    def aggregation(self) -> Aggregation:
        """How the server makes one update of those that devices sent."""
        rule = self.config.aggregation.rule
        return AGGREGATIONS[rule].build(self.config.parameters.get(rule, {}))

    @property
    def needs_single_updates(self) -> bool:
        """Whether the server has to see every update by itself."""
        return self.aggregation.needs_single_updates or self.config.privacy.clip is not None


def population(session: Session) -> Population:
    """Return how many devices and samples a session has."""
    return Population(len(session.devices), sum(map(session.samples, session.devices)))


def draw_participants(
    world: World, session: Session, t: int, purpose: str, share: float | int | None
) -> tuple[int, ...]:
    """Draw A^(s,t) (or A_grad), keyed by name."""
    sizes = [session.samples(device) for device in session.devices]
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
    """Return the participants and their mini-batches, drawn by name when they are used."""

    def batches(place: int) -> tuple[Indices, ...]:
        device = devices[place]
        draw = generator(world.seed, purpose, session.index, t, device)
        count = draw_steps(draw, steps)
        shard = session.shards[device]
        drawn = local_batches(draw, shard, count, batch, world.config.local.rule)
        return tuple(rows for rows in drawn if len(rows) >= world.smallest_batch)

    samples = tuple(session.samples(device) for device in devices)
    weights: tuple[float, ...] = ()
    if world.config.participation.weighting == "weighted":
        # Larger devices are drawn more often: weighting by D_k would count their size twice.
        size = certain_size([session.samples(device) for device in session.devices], len(devices))
        weights = tuple(max(count, size) for count in samples)
    drawn = LazySequence(len(devices), batches)
    shards = LazySequence(len(devices), lambda place: session.shards[devices[place]])
    return Cohort(
        session=session.index,
        round=t,
        devices=tuple(devices),
        batches=drawn,
        samples=samples,
        names=(world.seed, purpose),
        shards=shards,
        weights=weights,
        draws=BatchDraws(purpose, steps, batch),
    )


def draw_round(world: World, session: Session, t: int, purpose: str = "local") -> Cohort:
    """Draw A^(s,t), the participants of round t, and their mini-batches.

    Another ``purpose`` gives the same participants other mini-batches.
    """
    local, share = world.config.local, world.config.participation.share
    present = draw_participants(world, session, t, "participants", share)
    return draw_cohort(world, session, t, present, local.steps, local.batch, purpose)
