"""How a cohort is cut for workers, what a worker is told to do, and what it returns.

A chunk is a number of whole leaves. A worker that knows the session draws the devices' mini-batches
by name; those of a cohort that are not drawn by name (the server's own data) travel with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.local import BatchDraws, Cohort, Lane
from ebbflow.core.rng import Name
from ebbflow.core.types import Indices, State
from ebbflow.engines.leaves import LeafStretch

CHUNKS_PER_WORKER = 4
"""So many turns a worker gets in a round if leaves allow it: a slow one gets fewer of them."""
CHUNK_BYTES = 32 * 2**20
"""Of sums that a chunk returns, unless a single leaf has more."""


class Put(NamedTuple):
    """Something that workers need more than once: its number, and where to get it.

    ``kind`` says what it is; a worker keeps the latest few of each kind.
    """

    kind: str
    number: int
    reference: Any


class SharedLane(NamedTuple):
    """A lane without its devices' states, as it is put into the object store."""

    algorithm: Put
    shared: Broadcast
    lr: float


class OwnRows(NamedTuple):
    """The rows of devices whose mini-batches are not drawn by name."""

    batches: list[list[Indices]]
    samples: tuple[int, ...]
    shards: list[Indices]


class Chunk(NamedTuple):
    """Some devices of a round, and all that a worker needs to draw their mini-batches."""

    session: int
    round: int
    devices: tuple[int, ...]
    names: tuple[Name, ...]
    weights: tuple[float, ...]
    draws: BatchDraws | None
    rows: OwnRows | None = None


class TrainingTask(NamedTuple):
    """A chunk to be trained in every lane; ``states`` are what its devices remember in each."""

    world: Put
    session: Put | None
    lanes: Put
    chunk: Chunk
    states: list[dict[int, State]]


class EvaluationTask(NamedTuple):
    """Models to be tested on some parts of a test set."""

    world: Put
    models: Put
    test: Put
    rows: list[range]


Task = TrainingTask | EvaluationTask


class Computed(NamedTuple):
    """What came of a chunk: its leaves, and the steps and samples of each of its devices."""

    leaves: list[LeafStretch]
    counts: list[tuple[int, int]]


class Failed(NamedTuple):
    """What went wrong on a worker: the error, and its traceback as text."""

    error: Exception
    traceback: str


def leaves_in_a_chunk(leaves: int, leaf: int, workers: int, threads: int, leaf_bytes: int) -> int:
    """Return how many leaves a chunk has, which changes nothing but the time that a round takes.

    A chunk has a device for each thread of a worker, if there are enough for all workers, and more
    if sums are small.

    >>> leaves_in_a_chunk(leaves=100, leaf=4, workers=2, threads=4, leaf_bytes=2**20)
    13
    >>> leaves_in_a_chunk(leaves=25, leaf=4, workers=2, threads=4, leaf_bytes=44 * 2**20)
    1
    >>> leaves_in_a_chunk(leaves=25, leaf=4, workers=2, threads=16, leaf_bytes=44 * 2**20)
    4
    """
    fair = -(-leaves // (workers * CHUNKS_PER_WORKER))
    busy = min(-(-threads // leaf), -(-leaves // workers))
    return max(1, busy, min(fair, CHUNK_BYTES // max(1, leaf_bytes)))


def cut(devices: int, leaf: int, leaves: int) -> Iterator[range]:
    """Yield the places of each chunk, in order.

    >>> list(cut(devices=10, leaf=4, leaves=2))
    [range(0, 8), range(8, 10)]
    """
    for first in range(0, devices, leaf * leaves):
        yield range(first, min(first + leaf * leaves, devices))


def chunk_of(cohort: Cohort, places: range) -> Chunk:
    """Return what a worker is told of the devices at these places."""
    part = slice(places.start, places.stop)
    rows = None
    if cohort.draws is None:
        rows = OwnRows(
            batches=[[np.asarray(rows) for rows in cohort.batches[place]] for place in places],
            samples=cohort.samples[part],
            shards=[cohort.shards[place] for place in places] if len(cohort.shards) else [],
        )
    return Chunk(
        cohort.session,
        cohort.round,
        cohort.devices[part],
        cohort.names,
        cohort.weights[part],
        cohort.draws,
        rows,
    )


def states_in(lanes: Sequence[Lane], chunk: Chunk) -> list[dict[int, State]]:
    """Return what the chunk's devices remember in every lane, if anything."""
    return [
        {device: lane.clients[device] for device in chunk.devices if device in lane.clients}
        for lane in lanes
    ]


def lane_of(shared: SharedLane, algorithm: Algorithm, states: dict[int, State]) -> Lane:
    """Return a lane as an engine takes it."""
    return Lane(algorithm, shared.shared, shared.lr, states)
