"""What a session costs by the paper's formulas: uploads, broadcasts, local steps, bytes, storage.

`training`, `probing`, `coefficients` and `storage` follow the paper's cost analysis stage by stage;
`planned` puts them together for a session of equal devices. A run counts the same quantities as it
goes (`ebbflow.core.counters`), and `totals` reads the counts back from its events; the tests hold
the two against each other. docs/metrics.md has the readings and the errata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ebbflow.core.counters import (
    COEFFICIENTS,
    CONSTRUCTION,
    EVENT,
    FLOAT,
    MAIN,
    PILOT,
    PROBE,
    RETENTION,
    Cost,
    Costs,
    Payload,
    Stored,
    charged,
    read,
    retention,
    stored_bytes,
)

PROBING = frozenset({"warm_start"})
"""The starts that run the V auxiliary rounds, and so use the pilot model."""
MIXING = frozenset({"warm_start", "average"})
"""The starts that are a weighted average of past models."""
TWICE = frozenset({"scaffold"})
"""The algorithms that send a second vector of parameters, both up and down."""


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
