"""The paper's cost formulas: uploads, broadcasts, local steps, bytes and storage of a session.

`training`, `probing`, `coefficients` and `storage` follow the paper's cost analysis stage by stage;
`planned` combines them for a session of equal devices. A run counts the same quantities while it
works (`ebbflow.core.counters`), and `totals` reads those counts from its events. The tests compare
the two. docs/metrics.md explains how the paper was read, and its errata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ebbflow.algorithms import ALGORITHMS
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
from ebbflow.starts import STARTS

EVERYTHING = frozenset({"pilot", "models", "signatures"})
"""What a start may need of the past."""

# A run can be read where the file that registered its algorithms and starts is not at hand.


def probes(start: str) -> bool:
    """Whether a start runs the V auxiliary rounds; False if it is not registered here."""
    return start in STARTS and STARTS[start].probes


def keeps(start: str) -> frozenset[str]:
    """Return what a start needs of the past; everything, if it is not registered here."""
    return STARTS[start].keeps if start in STARTS else EVERYTHING


# --- formulas ------------------------------------------------------------------------------------


def payload(algorithm: str, parameters: int, buffers: int = 0) -> Payload:
    """Return the bytes of one upload and of one broadcast.

    Buffers travel with the model, and with no other vector.

    >>> payload("fedavg", 650), payload("scaffold", 650)
    (Payload(up=2600, down=2600), Payload(up=5200, down=5200))
    """
    vectors = ALGORITHMS[algorithm].vectors if algorithm in ALGORITHMS else 1
    size = FLOAT * (vectors * parameters + buffers)
    return Payload(size, size)


class LocalWork(NamedTuple):
    """The work of one device in one round: its steps e_k, and the samples in their mini-batches."""

    steps: int
    samples: int


def local_work(
    samples: int,
    steps: int,
    batch: int,
    rule: Literal["one_pass", "each_step"] = "one_pass",
    least: int = 1,
) -> LocalWork:
    """Return the work of a device with D_k samples that is asked for ``steps`` local steps.

    In one pass it makes min(e, ceil(D_k / B)) steps, the last of them perhaps smaller; otherwise e
    steps of min(B, D_k) samples. Batches of fewer than ``least`` samples are left out: two for
    models with batch statistics.

    >>> local_work(300, 5, 128), local_work(300, 5, 128, "each_step")
    (LocalWork(steps=3, samples=300), LocalWork(steps=5, samples=640))
    """
    if rule == "each_step":
        size = min(batch, samples)
        return LocalWork(steps, steps * size) if size >= least else LocalWork(0, 0)
    sizes = [min(batch, samples - at) for at in range(0, samples, batch)[:steps]]
    made = [size for size in sizes if size >= least]
    return LocalWork(len(made), sum(made))


def training(rounds: Iterable[Sequence[LocalWork]], sent: Payload) -> Cost:
    """Return the cost of rounds, each given by the work of its participants A^(s,t).

    sum_t sum_{k in A^(s,t)} e_k^(s,t) steps, sum_t |A^(s,t)| uploads and one broadcast a round, in
    the pilot sessions and in the main training alike.
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


def probing(rounds: int, devices: Sequence[LocalWork], sent: Payload) -> Cost:
    """Return the cost of the V auxiliary rounds on A_grad: V times the cost of one.

    V |A_grad| uploads, V broadcasts, V sum_{k in A_grad} e_k^(s,1) steps.
    """
    return training([devices] * rounds, sent)


def candidates(session: int, pilot: int, limit: int | None = None) -> int:
    """Return how many past sessions session s can draw on: s - P - 1, but at most H.

    The first session with a candidate is P+2; the paper prints P+1.

    >>> [candidates(s, 1) for s in range(1, 6)], [candidates(s, 1, 2) for s in range(1, 6)]
    ([0, 0, 1, 2, 3], [0, 0, 1, 2, 2])
    """
    past = max(0, session - pilot - 1)
    return past if limit is None else min(past, limit)


def coefficients(session: int, pilot: int, limit: int | None = None) -> Cost:
    """Return the cost of the weights mu_(s,z): one distance for every candidate."""
    return Cost(distances=candidates(session, pilot, limit))


def construction(session: int, pilot: int, limit: int | None = None) -> Cost:
    """Return the cost of the initial model, an average of all candidates."""
    return Cost(mixed=candidates(session, pilot, limit))


Keep = Literal["all", "last", "diverse"]
"""Which past sessions are kept: all, or the paper's limited history or selective retention."""


def storage(
    session: int,
    pilot: int,
    parameters: int,
    buffers: int = 0,
    *,
    signed: bool = True,
    limit: int | None = None,
) -> Stored:
    """Return what is kept after session s.

    Up to session P these are the final models so far; afterwards the pilot model, and a model and a
    signature for each session, at most H of them. A signature has no buffers: it takes 4 N_p bytes
    where a model takes 4 (N_p + N_b).

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
class CostPlan:
    """A run of equal devices in the paper's symbols, from which costs follow without running it.

    Attributes:
        rounds: T; ``pilot_rounds`` is that of pilot sessions, if it differs.
        pilot: P.
        participants: |A^(s,t)|.
        device: The work of a participant in a round of training.
        parameters: N_p; ``buffers`` is N_b.
        algorithm: The algorithm, which decides what is sent.
        start: How sessions start.
        probe_rounds: V.
        probe_participants: |A_grad|, if it differs from ``participants``.
        probe_device: The work of a participant in an auxiliary round, if it differs.
        keep: Which past sessions are kept.
        limit: H, unless all are kept.
    """

    rounds: int
    pilot: int
    participants: int
    device: LocalWork
    parameters: int
    buffers: int = 0
    algorithm: str = "fedavg"
    start: str = "warm_start"
    pilot_rounds: int | None = None
    probe_rounds: int = 1
    probe_participants: int | None = None
    probe_device: LocalWork | None = None
    keep: Keep = "all"
    limit: int | None = None

    @property
    def sent(self) -> Payload:
        """The bytes of one upload and of one broadcast."""
        return payload(self.algorithm, self.parameters, self.buffers)


def planned(plan: CostPlan, session: int) -> Costs:
    """Return the costs of session s by stage.

    >>> device = LocalWork(steps=5, samples=160)
    >>> plan = CostPlan(rounds=10, pilot=1, participants=4, device=device, parameters=650)
    >>> {stage: cost.uploads for stage, cost in planned(plan, 4).items() if cost.uploads}
    {'probe': 4, 'main': 40}
    """
    everyone = [plan.device] * plan.participants
    costs: Costs = {}
    if session <= plan.pilot:
        rounds = plan.rounds if plan.pilot_rounds is None else plan.pilot_rounds
        costs = charged(costs, PILOT, training([everyone] * rounds, plan.sent))
        return charged(costs, PILOT, Cost(mixed=plan.pilot if session == plan.pilot else 0))
    if probes(plan.start):
        some = plan.participants if plan.probe_participants is None else plan.probe_participants
        probed = [plan.probe_device or plan.device] * some
        costs = charged(costs, PROBE, probing(plan.probe_rounds, probed, plan.sent))
        costs = charged(costs, COEFFICIENTS, coefficients(session, plan.pilot, plan.limit))
    if "models" in keeps(plan.start):
        costs = charged(costs, CONSTRUCTION, construction(session, plan.pilot, plan.limit))
    costs = charged(costs, MAIN, training([everyone] * plan.rounds, plan.sent))
    held = candidates(session, plan.pilot, plan.limit) + 1
    return charged(costs, RETENTION, retention(held, plan.keep, plan.limit))


def needed(start: str, stored: Stored) -> int:
    """Return how many of the stored models a start needs.

    A run keeps the final models of every method for its history, whether or not the method uses
    them.

    >>> stored = Stored(models=6)  # the pilot model and five sessions' models
    >>> [needed(start, stored) for start in ("warm_start", "average", "continuous", "previous")]
    [6, 5, 1, 0]
    """
    kept = keeps(start)
    wanted = ("pilot" in kept) + ("teacher" in kept)
    if "models" in kept:
        wanted += max(0, stored.models - 1)
    return min(stored.models, wanted)


class Account(NamedTuple):
    """What one method has cost so far under one seed, by stage, and what it stores now."""

    costs: Costs
    stored: Stored
    sessions: int


def totals(
    events: Iterable[Mapping[str, Any]], *, carry_over: bool
) -> dict[tuple[str, str, int], Account]:
    """Add up the costs in a run's events for every algorithm, method and seed.

    Pilot sessions are charged to the methods that use them: to methods that probe in full, and to
    the others their training, if the next session continues from the last pilot model
    (``carry_over``).
    """
    accounts: dict[tuple[str, str, int], Account] = {}
    for event in events:
        if event["event"] != EVENT:
            continue
        key = event["algorithm"], event["method"], event["seed"]
        before = accounts.get(key, Account({}, Stored(), 0))
        costs = before.costs
        for stage, cost in read(event["stages"]).items():
            costs = charged(costs, stage, cost)
        accounts[key] = Account(costs, Stored(**event["stored"]), before.sessions + 1)
    return {key: _without_pilot(account, carry_over) for key, account in accounts.items()}


def _without_pilot(account: Account, carry_over: bool) -> Account:
    if PROBE in account.costs or PILOT not in account.costs:
        return account
    others = {stage: cost for stage, cost in account.costs.items() if stage != PILOT}
    trained = replace(account.costs[PILOT], mixed=0)
    return account._replace(costs={PILOT: trained, **others} if carry_over else others)
