"""What a session costs: uploads, broadcasts, local steps, bytes, vectors kept.

Two accounts of the same thing, which the tests hold against each other. The *formulas* are those of
the paper's cost analysis, stage by stage: `training`, `probing`, `coefficients`, `storage`, and
`planned` for a whole session of equal devices. The *counters* are filled where the work is done: a
`Tally` notes the mini-batches that an engine takes, `ebbflow.simulate` adds up a `Cost` per stage,
and every session ends with an event from which `totals` reads them again. See docs/metrics.md for
the readings and the errata.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError

Rows = Sequence[NDArray[np.int64]]
"""The row numbers of each of a device's local steps."""

PILOT, PROBE, COEFFICIENTS, CONSTRUCTION, MAIN, RETENTION = STAGES = (
    "pilot",
    "probe",
    "coefficients",
    "construction",
    "main",
    "retention",
)
"""The paper's stages in the order of Algorithm 1, and the choice of what to keep."""

FLOAT = 4
"""Bytes of one entry of a vector: models, signatures and uploads are float32."""
PROBING = frozenset({"warm_start"})
"""The starts that run the V auxiliary rounds, and so use the pilot model."""
MIXING = frozenset({"warm_start", "average"})
"""The starts that are a weighted average of past models."""
TWICE = frozenset({"scaffold"})
"""The algorithms that send a second vector of parameters, both up and down."""


@dataclass(frozen=True)
class Cost:
    """What one stage of one session took.

    ``uploads`` are models that devices sent, ``broadcasts`` models that the server sent (one a
    round, however many devices hear it); ``steps`` are local steps e_k and ``samples`` those of
    their mini-batches; ``bytes_up`` is over all uploads, ``bytes_down`` over all broadcasts;
    ``distances`` are comparisons of two whole vectors, ``mixed`` the models that went into an
    average.

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

    def __add__(self, other: Cost) -> Cost:
        pairs = zip(asdict(self).items(), asdict(other).values(), strict=True)
        return Cost(**{name: mine + theirs for (name, mine), theirs in pairs})

    def counts(self) -> dict[str, int]:
        """Return what is not zero, by name: how a cost is written down."""
        return {name: value for name, value in asdict(self).items() if value}


Costs = Mapping[str, Cost]
"""The costs of a session by stage; replaced, never changed in place."""


def charged(costs: Costs, stage: str, cost: Cost) -> Costs:
    """Return the costs with one more of a stage; a stage that cost nothing is not mentioned."""
    if cost == Cost():
        return costs
    return {**costs, stage: costs.get(stage, Cost()) + cost}


class Payload(NamedTuple):
    """Bytes of one device's upload, and of one broadcast."""

    up: int
    down: int


@dataclass(frozen=True)
class Stored:
    """What is kept when a session is over.

    ``models`` are the pilot model and past sessions' final models, ``signatures`` their
    pseudo-gradients, ``bytes`` both together; ``temporary`` are final models of pilot sessions,
    which are deleted once the pilot model is made of them.
    """

    models: int = 0
    signatures: int = 0
    bytes: int = 0
    temporary: int = 0


# --- formulas ------------------------------------------------------------------------------------


def payload(algorithm: str, parameters: int, buffers: int = 0) -> Payload:
    """Return what one upload and one broadcast weigh: a model, and SCAFFOLD's control variate.

    Buffers travel with the model, but there is no control variate of a buffer.

    >>> payload("fedavg", 650), payload("scaffold", 650)
    (Payload(up=2600, down=2600), Payload(up=5200, down=5200))
    """
    vectors = 2 if algorithm in TWICE else 1
    size = FLOAT * (vectors * parameters + buffers)
    return Payload(size, size)


class Local(NamedTuple):
    """One device in one round: its steps e_k, and the samples in their mini-batches."""

    steps: int
    samples: int


def local_work(
    samples: int,
    steps: int,
    batch: int,
    rule: Literal["one_pass", "each_step"] = "one_pass",
    least: int = 1,
) -> Local:
    """Return what a device with D_k samples does when ``steps`` are asked of it.

    In one pass there are min(e, ceil(D_k / B)) steps, the last perhaps smaller; otherwise e of
    min(B, D_k) each. Batches of fewer than ``least`` (two, with batch statistics) are left out.

    >>> local_work(300, 5, 128), local_work(300, 5, 128, "each_step")
    (Local(steps=3, samples=300), Local(steps=5, samples=640))
    """
    if rule == "each_step":
        size = min(batch, samples)
        return Local(steps, steps * size) if size >= least else Local(0, 0)
    sizes = [min(batch, samples - at) for at in range(0, samples, batch)[:steps]]
    made = [size for size in sizes if size >= least]
    return Local(len(made), sum(made))


def training(rounds: Iterable[Sequence[Local]], sent: Payload) -> Cost:
    """Return the cost of rounds, each given by what its participants A^(s,t) do.

    sum_t sum_{k in A^(s,t)} e_k^(s,t) steps, sum_t |A^(s,t)| uploads, one broadcast a round: the
    paper's pilot stage, and its main training, whose rounds are of the same kind.
    """
    total = Cost()
    for devices in rounds:
        total += Cost(
            uploads=len(devices),
            broadcasts=1,
            steps=sum(device.steps for device in devices),
            samples=sum(device.samples for device in devices),
            bytes_up=len(devices) * sent.up,
            bytes_down=sent.down,
        )
    return total


def probing(rounds: int, devices: Sequence[Local], sent: Payload) -> Cost:
    """Return the cost of the V auxiliary rounds on A_grad: V times that of one.

    V |A_grad| uploads, V broadcasts, V sum_{k in A_grad} e_k^(s,1) steps.
    """
    return training([devices] * rounds, sent)


def candidates(session: int, pilot: int, limit: int | None = None) -> int:
    """Return how many past sessions session s can draw on: s - P - 1, or H if that is fewer.

    None until P+2, so the coefficient stage begins there and not, as printed, at P+1.

    >>> [candidates(s, 1) for s in range(1, 6)], [candidates(s, 1, 2) for s in range(1, 6)]
    ([0, 0, 1, 2, 3], [0, 0, 1, 2, 2])
    """
    past = max(0, session - pilot - 1)
    return past if limit is None else min(past, limit)


def coefficients(session: int, pilot: int, limit: int | None = None) -> Cost:
    """Return the cost of mu_(s,z): a distance for every candidate, O((s - P - 1) M) operations."""
    return Cost(distances=candidates(session, pilot, limit))


def construction(session: int, pilot: int, limit: int | None = None) -> Cost:
    """Return the cost of the initial model: every candidate goes into the average."""
    return Cost(mixed=candidates(session, pilot, limit))


Keep = Literal["all", "last", "diverse"]
"""Which past sessions are kept; the paper's limited history and selective retention."""


def retention(held: int, keep: str, limit: int | None) -> Cost:
    """Return the cost of choosing what to keep of ``held`` entries.

    Only diversity costs anything: every pair is compared as soon as one entry is too many.

    >>> retention(3, "diverse", 2).distances, retention(2, "diverse", 2).distances
    (3, 0)
    """
    if keep != "diverse" or limit is None or held <= limit:
        return Cost()
    return Cost(distances=math.comb(held, 2))


def storage(
    session: int,
    pilot: int,
    parameters: int,
    buffers: int = 0,
    *,
    signed: bool = True,
    limit: int | None = None,
) -> Stored:
    """Return what is kept after session s: at most P models, then Z + 2 Z a session up to H.

    A signature has no buffers: it is 4 N_p bytes where a model is 4 (N_p + N_b).

    >>> [storage(s, 2, 10).models for s in range(1, 6)]
    [0, 1, 2, 3, 4]
    >>> [storage(s, 2, 10).temporary for s in range(1, 6)]
    [1, 2, 0, 0, 0]
    """
    if session <= pilot:
        models = 1 if session == pilot else 0
        return Stored(models, 0, stored_bytes(models, 0, parameters, buffers), session)
    kept = session - pilot if limit is None else min(session - pilot, limit)
    signatures = kept if signed else 0
    size = stored_bytes(1 + kept, signatures, parameters, buffers)
    return Stored(1 + kept, signatures, size)


def stored_bytes(models: int, signatures: int, parameters: int, buffers: int = 0) -> int:
    """Return the bytes of so many models and signatures."""
    return FLOAT * (models * (parameters + buffers) + signatures * parameters)


@dataclass(frozen=True)
class Plan:
    """A run of equal devices, by the paper's symbols, for costs without a run.

    Attributes:
        rounds: T; ``pilot_rounds`` that of pilot sessions, if another.
        pilot: P.
        participants: |A^(s,t)|.
        device: What a participant does in a round of training.
        parameters: N_p; ``buffers`` N_b.
        algorithm: Whose payload is sent.
        start: How sessions start; only `PROBING` ones probe.
        probe_rounds: V.
        probe_participants: |A_grad|, if another than ``participants``.
        probe_device: What a participant does in an auxiliary round, if something else.
        keep: Which past sessions are kept.
        limit: H, where not all are.
    """

    rounds: int
    pilot: int
    participants: int
    device: Local
    parameters: int
    buffers: int = 0
    algorithm: str = "fedavg"
    start: str = "warm_start"
    pilot_rounds: int | None = None
    probe_rounds: int = 1
    probe_participants: int | None = None
    probe_device: Local | None = None
    keep: Keep = "all"
    limit: int | None = None

    @property
    def sent(self) -> Payload:
        """What one upload and one broadcast weigh."""
        return payload(self.algorithm, self.parameters, self.buffers)


def planned(plan: Plan, session: int) -> Costs:
    """Return the costs of session s by stage.

    >>> plan = Plan(rounds=10, pilot=1, participants=4, device=Local(5, 160), parameters=650)
    >>> {stage: cost.uploads for stage, cost in planned(plan, 4).items() if cost.uploads}
    {'probe': 4, 'main': 40}
    """
    everyone = [plan.device] * plan.participants
    costs: Costs = {}
    if session <= plan.pilot:
        rounds = plan.rounds if plan.pilot_rounds is None else plan.pilot_rounds
        costs = charged(costs, PILOT, training([everyone] * rounds, plan.sent))
        return charged(costs, PILOT, Cost(mixed=plan.pilot if session == plan.pilot else 0))
    if plan.start in PROBING:
        some = plan.participants if plan.probe_participants is None else plan.probe_participants
        probed = [plan.probe_device or plan.device] * some
        costs = charged(costs, PROBE, probing(plan.probe_rounds, probed, plan.sent))
        costs = charged(costs, COEFFICIENTS, coefficients(session, plan.pilot, plan.limit))
    if plan.start in MIXING:
        costs = charged(costs, CONSTRUCTION, construction(session, plan.pilot, plan.limit))
    costs = charged(costs, MAIN, training([everyone] * plan.rounds, plan.sent))
    held = candidates(session, plan.pilot, plan.limit) + 1
    return charged(costs, RETENTION, retention(held, plan.keep, plan.limit))


# --- counters ------------------------------------------------------------------------------------


class Tally(Sequence[Rows]):
    """The mini-batches of a cohort, which note what is taken of them.

    A device's are noted once, however often an engine looks at them; those of a device that no
    engine trains are not noted at all. Threads may take different devices at the same time.

    >>> tally = Tally([[np.arange(8), np.arange(3)], [np.arange(8)]])
    >>> len(tally[0]), len(tally[0]), tally.steps, tally.samples
    (2, 2, 2, 11)
    """

    def __init__(self, batches: Sequence[Rows]) -> None:
        self._batches = batches
        self._taken = np.zeros((len(batches), 2), dtype=np.int64)

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
        self._taken[place] = len(rows), sum(map(len, rows))
        return rows

    @property
    def steps(self) -> int:
        """Local steps of all devices so far."""
        return int(self._taken[:, 0].sum())

    @property
    def samples(self) -> int:
        """Samples in their mini-batches."""
        return int(self._taken[:, 1].sum())

    def round(self, uploads: int, sent: Payload) -> Cost:
        """Return the cost of the round that these mini-batches were for."""
        return Cost(
            uploads=uploads,
            broadcasts=1,
            steps=self.steps,
            samples=self.samples,
            bytes_up=uploads * sent.up,
            bytes_down=sent.down,
        )


EVENT = "costs"
"""What the event at a session's end is called."""


def written(costs: Costs) -> dict[str, dict[str, int]]:
    """Return costs as they are written down, stages in their order."""
    return {stage: costs[stage].counts() for stage in STAGES if stage in costs}


def read(stages: Mapping[str, Mapping[str, int]]) -> Costs:
    """Return costs from what was written down.

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


def needed(start: str, stored: Stored) -> tuple[int, int]:
    """Return how many of the stored models and signatures a start has a use for.

    Every method's final models are kept, for a look into its history; but ``previous`` needs none
    of them, ``continuous`` its teacher, and ``average`` no pilot model.
    """
    models = {"previous": 0, "continuous": 1, "average": stored.models - 1}
    return max(0, min(stored.models, models.get(start, stored.models))), stored.signatures


class Account(NamedTuple):
    """What one method of one seed has cost so far: by stage, and what it keeps now."""

    costs: Costs
    stored: Stored
    sessions: int


def totals(
    events: Iterable[Mapping[str, Any]], *, carry_over: bool
) -> dict[tuple[str, str, int], Account]:
    """Add up a run's events, for every algorithm, method and seed.

    Pilot sessions are charged to whoever uses them: all of them to methods that probe; their
    training to everybody where the next session goes on from their last model (``carry_over``).
    """
    found: dict[tuple[str, str, int], Account] = {}
    for event in events:
        if event["event"] != EVENT:
            continue
        key = event["algorithm"], event["method"], event["seed"]
        before = found.get(key, Account({}, Stored(), 0))
        costs = before.costs
        for stage, cost in read(event["stages"]).items():
            costs = charged(costs, stage, cost)
        found[key] = Account(costs, Stored(**event["stored"]), before.sessions + 1)
    return {key: _without_pilot(account, carry_over) for key, account in found.items()}


def _without_pilot(account: Account, carry_over: bool) -> Account:
    if PROBE in account.costs or PILOT not in account.costs:
        return account
    others = {stage: cost for stage, cost in account.costs.items() if stage != PILOT}
    trained = replace(account.costs[PILOT], mixed=0)
    return account._replace(costs={PILOT: trained, **others} if carry_over else others)
