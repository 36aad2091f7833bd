"""The paper's cost formulas: uploads, broadcasts, local steps, bytes and storage of a session.

`training`, `probing`, `coefficients` and `storage` follow the paper's cost analysis stage by stage;
`surveying` does the same for the learned start, which is not the paper's. `planned` combines them
for a session of equal devices. A run counts the same quantities while it works
(`ebbflow.core.counters`), and `totals` reads those counts from its events. The tests compare the
two. docs/metrics.md explains how the paper was read, and its errata.
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
    SURVEY,
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

NOTHING = Cost()
"""No cost."""

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


Compression = Literal["fp32", "bf16", "int8"]
"""How a survey sends its models; the learned start's parameter of that name."""

VALUES: Mapping[Compression, tuple[int, int]] = {"fp32": (4, 4), "bf16": (2, 2), "int8": (2, 1)}
"""Bytes of a value of a survey's first model, and of the others."""


def basis_bytes(
    parameters: int, models: int, compression: Compression = "bf16", buffers: int = 0
) -> tuple[int, ...]:
    """Return the bytes of each of the K models that a survey sends, in their order.

    In 8 bits the others are sent as differences from the first. Buffers are sent as they are.

    >>> basis_bytes(1000, 3), basis_bytes(1000, 3, "int8")
    ((2000, 2000, 2000), (2000, 1000, 1000))
    """
    first, other = VALUES[compression]
    return tuple(
        (other if place else first) * parameters + FLOAT * buffers for place in range(models)
    )


def label_question(classes: int, devices: int, *, models: int = 0, samples: int = 0) -> Cost:
    """Return the cost of adding up label counts: one for every label goes up, the sum down.

    Where logits are linear in the parameters, this is when the devices evaluate the K models on all
    their ``samples``, once; later questions then take no pass.
    """
    return Cost(
        bytes_up=FLOAT * classes * devices,
        bytes_down=FLOAT * classes,
        questions=1,
        passes=models * samples,
    )


def loss_question(mixtures: int, models: int, devices: int, samples: int) -> Cost:
    """Return the cost of asking for the losses at A mixtures of K models.

    A K weights go down. Every device sends A losses, what its samples count, and the A (A + 1) / 2
    products of two losses. ``samples`` are those of all devices; each is passed forward A times
    (zero samples where logits are linear).
    """
    answer = mixtures + 1 + mixtures * (mixtures + 1) // 2
    return Cost(
        bytes_up=FLOAT * answer * devices,
        bytes_down=FLOAT * mixtures * models,
        questions=1,
        passes=mixtures * samples,
    )


def expansion_question(models: int, devices: int, samples: int) -> Cost:
    """Return the cost of asking for the loss, its slope and its curvature at one mixture.

    K weights go down; a loss, what the samples count, K slopes and K (K + 1) / 2 curvatures go up.
    A sample takes 1 + 2 K forward passes.
    """
    return Cost(
        bytes_up=FLOAT * (2 + models + models * (models + 1) // 2) * devices,
        bytes_down=FLOAT * models,
        questions=1,
        passes=(1 + 2 * models) * samples,
    )


def surveying(basis: Sequence[int], questions: Iterable[Cost] = ()) -> Cost:
    """Return the cost of a survey: its models, each broadcast once, and its questions.

    How many questions there are depends on the data, and is known only afterwards.

    >>> asked = [loss_question(7, 6, 20, 640), *[expansion_question(6, 20, 640)] * 3]
    >>> surveying(basis_bytes(7850, 6), asked).counts()
    {'broadcasts': 6, 'bytes_up': 9840, 'bytes_down': 94440, 'questions': 4, 'passes': 29440}
    """
    return sum(questions, start=Cost(broadcasts=len(basis), bytes_down=sum(basis)))


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
    started: bool = False,
) -> Stored:
    """Return what is kept after session s.

    Up to session P these are the final models so far; afterwards the pilot model, and a model and a
    signature for each session, at most H of them. A signature has no buffers: it takes 4 N_p bytes
    where a model takes 4 (N_p + N_b). If sessions keep the model that they ``started`` from, each
    has two models.

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
    models = 1 + (2 if started else 1) * kept
    return Stored(models, signatures, stored_bytes(models, signatures, parameters, buffers))


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
        survey: The cost of a session's survey, by `surveying`, for a start that asks devices.
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
    survey: Cost = NOTHING
    keep: Keep = "all"
    limit: int | None = None

    @property
    def sent(self) -> Payload:
        """The bytes of one upload and of one broadcast."""
        return payload(self.algorithm, self.parameters, self.buffers)


def planned(plan: CostPlan, session: int) -> Costs:
    """Return the costs of session s by stage.

    A survey's models count as mixed, though those that get no weight are not; how many that are,
    like the number of questions, depends on the data.

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
    costs = charged(costs, SURVEY, plan.survey)
    if plan.survey != NOTHING:
        costs = charged(costs, CONSTRUCTION, Cost(mixed=plan.survey.broadcasts))
    elif "models" in keeps(plan.start):
        costs = charged(costs, CONSTRUCTION, construction(session, plan.pilot, plan.limit))
    costs = charged(costs, MAIN, training([everyone] * plan.rounds, plan.sent))
    held = candidates(session, plan.pilot, plan.limit) + 1
    return charged(costs, RETENTION, retention(held, plan.keep, plan.limit))


def needed(start: str, stored: Stored) -> int:
    """Return how many of the stored models a start needs.

    A run keeps the final models of every method for its history, whether or not the method uses
    them, and the models that sessions started from for methods that use these.

    >>> stored = Stored(models=6)  # the pilot model and five sessions' models
    >>> [needed(start, stored) for start in ("warm_start", "average", "continuous", "previous")]
    [6, 5, 1, 0]
    >>> needed("learned", Stored(models=11))  # and those that the sessions started from
    11
    """
    kept = keeps(start)
    past = max(0, stored.models - 1)
    starts = past // 2 if "starts" in kept else 0
    wanted = ("pilot" in kept) + ("teacher" in kept) + starts
    if "models" in kept:
        wanted += past - starts
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

    Pilot sessions are charged to the methods that use them: in full to methods that probe or send
    the pilot model in a survey, and to the others their training, if the next session continues
    from the last pilot model (``carry_over``).
    """
    accounts: dict[tuple[str, str, int], Account] = {}
    users = set()
    for event in events:
        if event["event"] == "start" and sends_pilot(event):
            users.add((event["algorithm"], event["method"], event["seed"]))
        if event["event"] != EVENT:
            continue
        key = event["algorithm"], event["method"], event["seed"]
        before = accounts.get(key, Account({}, Stored(), 0))
        costs = before.costs
        for stage, cost in read(event["stages"]).items():
            costs = charged(costs, stage, cost)
        accounts[key] = Account(costs, Stored(**event["stored"]), before.sessions + 1)
    return {
        key: account if key in users else _without_pilot(account, carry_over)
        for key, account in accounts.items()
    }


def sends_pilot(start: Mapping[str, Any]) -> bool:
    """Whether the survey of an event "start" sent the pilot model among its models.

    >>> sends_pilot({"mixture": {"carried": 1.0, "pilot": 0.0}}), sends_pilot({})
    (True, False)
    """
    return "pilot" in start.get("mixture", {})


def _without_pilot(account: Account, carry_over: bool) -> Account:
    if PROBE in account.costs or PILOT not in account.costs:
        return account
    others = {stage: cost for stage, cost in account.costs.items() if stage != PILOT}
    trained = replace(account.costs[PILOT], mixed=0)
    return account._replace(costs={PILOT: trained, **others} if carry_over else others)
