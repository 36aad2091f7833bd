"""Data of the server's own, for an aggregation that compares devices with the server."""

from __future__ import annotations

import numpy as np

from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import Cohort
from ebbflow.core.rng import generator
from ebbflow.core.types import Indices
from ebbflow.data.batches import draw_steps, local_batches
from ebbflow.simulation.world import World

SERVER = -1
"""The number under which the server trains."""


def server_cohort(world: World, cohort: Cohort) -> Cohort:
    """Return the server as the only device of a round.

    It trains on ``aggregation.server_samples`` training samples with the labels of the session,
    which are drawn once in a session, and makes as many steps as a device.
    """
    local = world.config.local
    labels = world.sessions[cohort.session - 1].labels
    eligible = np.flatnonzero(np.isin(world.dataset.train.kinds.cpu().numpy(), labels))
    draw = generator(world.seed, "server-data", cohort.session)
    count = min(world.config.aggregation.server_samples, len(eligible))
    rows: Indices = np.sort(draw.choice(eligible, count, replace=False))

    def batches(place: int) -> list[Indices]:
        own = generator(*cohort.names, "server", cohort.session, cohort.round)
        # One pass over so few samples would be a step or two, and the server's update as short.
        drawn = local_batches(own, rows, draw_steps(own, local.steps), local.batch, "each_step")
        return [each for each in drawn if len(each) >= world.smallest_batch]

    return cohort._replace(
        devices=(SERVER,),
        batches=LazySequence(1, batches),
        samples=(count,),
        shards=[rows],
        weights=(),
        draws=None,
        counted=None,
    )
