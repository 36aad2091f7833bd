"""Counters of the work in a session: uploads, broadcasts, local steps, bytes, vectors kept.

Work is counted where it is done: `CountedBatches` counts the mini-batches that an engine reads, the
simulator adds up a `Cost` per stage, and an event at the end of every session records them.
`ebbflow.analysis.accounting` has the paper's formulas for the same quantities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError

Rows = Sequence[NDArray[np.int64]]
"""The row numbers of each of a device's local steps."""

PILOT, PROBE, SURVEY, COEFFICIENTS, CONSTRUCTION, MAIN, RETENTION = STAGES = (
    "pilot",
    "probe",
    "survey",
    "coefficients",
    "construction",
    "main",
    "retention",
)
"""The stages of Algorithm 1 in order, with the learned start's survey in the place of the probe,
then the choice of which past sessions to keep."""

FLOAT = 4
"""Bytes of one entry of a vector: models, signatures and uploads are float32."""


@dataclass(frozen=True)
class Cost:
    """The cost of one stage of one session.

    ``uploads`` counts the models that devices sent, ``broadcasts`` those that the server sent (one
    a round, however many devices receive it); ``steps`` the local steps e_k, and ``samples`` the
    samples in their mini-batches; ``bytes_up`` is over all uploads, ``bytes_down`` over all
    broadcasts; ``distances`` counts comparisons of two whole vectors, ``mixed`` the models that
    went into an average. Of a survey, ``questions`` counts the messages to its devices, each with
    an answer, and ``passes`` the samples that were passed forward, once for every pass.

    >>> (Cost(uploads=3, broadcasts=1) + Cost(uploads=2, broadcasts=1)).counts()
    {'uploads': 5, 'broadcasts': 2}
    """

    uploads: int = 0
    broadcasts: int = 0
    steps: int = 0
    samples: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    distances: int = 0
    mixed: int = 0
    questions: int = 0
    passes: int = 0

    def __add__(self, other: Cost) -> Cost:
        pairs = zip(asdict(self).items(), asdict(other).values(), strict=True)
        return Cost(**{name: mine + theirs for (name, mine), theirs in pairs})

    def counts(self) -> dict[str, int]:
        """Return the counts that are not zero, by name, as they are written to a file."""
        return {name: value for name, value in asdict(self).items() if value}


Costs = Mapping[str, Cost]
"""The costs of a session by stage; replaced, never changed in place."""


def charged(costs: Costs, stage: str, cost: Cost) -> Costs:
    """Return the costs with ``cost`` added to a stage; a stage without cost is left out."""
    if cost == Cost():
        return costs
    return {**costs, stage: costs.get(stage, Cost()) + cost}


class Payload(NamedTuple):
    """Bytes of one device's upload, and of one broadcast."""

    up: int
    down: int


@dataclass(frozen=True)
class Stored:
    """What a method stores at the end of a session.

    ``models`` are the pilot model and past sessions' final models, ``signatures`` their
    pseudo-gradients, ``bytes`` both together; ``temporary`` are final models of pilot sessions,
    which are deleted once the pilot model has been built from them.
    """

    models: int = 0
    signatures: int = 0
    bytes: int = 0
    temporary: int = 0


def retention(held: int, keep: str, limit: int | None) -> Cost:
    """Return the cost of choosing which of ``held`` entries to keep.

    Only ``diverse`` costs anything: it compares every pair once there are too many entries.

    >>> retention(3, "diverse", 2).distances, retention(2, "diverse", 2).distances
    (3, 0)
    """
    if keep != "diverse" or limit is None or held <= limit:
        return Cost()
    return Cost(distances=math.comb(held, 2))


def stored_bytes(models: int, signatures: int, parameters: int, buffers: int = 0) -> int:
    """Return the size in bytes of this many models and signatures."""
    return FLOAT * (models * (parameters + buffers) + signatures * parameters)


class CountedBatches(Sequence[Rows]):
    """Mini-batches that count the steps and samples read.

    A device counts once, however often its batches are read, and not at all if they never are.
    Threads may read different devices at the same time.

    >>> tally = CountedBatches([[np.arange(8), np.arange(3)], [np.arange(8)]])
    >>> len(tally[0]), len(tally[0]), tally.steps, tally.samples
    (2, 2, 2, 11)
    """

    def __init__(self, batches: Sequence[Rows]) -> None:
        self._batches = batches
        self._counts = np.zeros((len(batches), 2), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._batches)

    @overload
    def __getitem__(self, place: int) -> Rows: ...
    @overload
    def __getitem__(self, place: slice) -> list[Rows]: ...
    def __getitem__(self, place: int | slice) -> Rows | list[Rows]:
        if isinstance(place, slice):
            return [self[i] for i in range(len(self))[place]]
        rows = self._batches[place]
        self._counts[place] = len(rows), sum(map(len, rows))
        return rows

    def note(self, place: int, steps: int, samples: int) -> None:
        """Count a device whose mini-batches were drawn and used in another process."""
        self._counts[place] = steps, samples

    def of(self, place: int) -> tuple[int, int]:
        """Return the steps and samples of one device so far."""
        steps, samples = self._counts[place].tolist()
        return steps, samples

    def made(self, place: int, share: float) -> None:
        """Count the first part of a device's steps, which it made in vain."""
        rows = self._batches[place]
        rows = rows[: math.floor(share * len(rows))]
        self._counts[place] = len(rows), sum(map(len, rows))

    @property
    def steps(self) -> int:
        """Local steps of all devices so far."""
        return int(self._counts[:, 0].sum())

    @property
    def samples(self) -> int:
        """Samples in their mini-batches."""
        return int(self._counts[:, 1].sum())

    def round(self, uploads: int, sent: Payload) -> Cost:
        """Return the cost of the round that used these mini-batches."""
        return Cost(
            uploads=uploads,
            broadcasts=1,
            steps=self.steps,
            samples=self.samples,
            bytes_up=uploads * sent.up,
            bytes_down=sent.down,
        )


EVENT = "costs"
"""The name of the event at a session's end."""


def written(costs: Costs) -> dict[str, dict[str, int]]:
    """Return costs in the form in which they are written to a file, stages in order."""
    return {stage: costs[stage].counts() for stage in STAGES if stage in costs}


def read(stages: Mapping[str, Mapping[str, int]]) -> Costs:
    """Return the costs that `written` turned into plain numbers.

    >>> read(written({"main": Cost(uploads=3)})) == {"main": Cost(uploads=3)}
    True
    """
    known = {field.name for field in fields(Cost)}
    for stage, counts in stages.items():
        if stage not in STAGES or not set(counts) <= known:
            raise EbbflowError(
                f"the costs {dict(counts)} of stage {stage!r} are not of this version: start a new "
                "run"
            )
    return {stage: Cost(**counts) for stage, counts in stages.items()}
