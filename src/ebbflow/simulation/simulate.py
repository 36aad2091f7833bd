"""The paper's Algorithm 1, for any number of methods side by side.

Read it beside the paper: `simulate` is the loop over sessions and rounds, `_begin` is "Pseudo-
Gradient Computation" and "Initial Model Construction", `_advance` is one round of "Main Training"
(and of "Pilot Preparation", which differs only in what is done with the result), `_finish` saves
w^(s,T+1) and makes the pilot model.

Methods that are compared run in lockstep over the same devices and mini-batches. As long as two of
them are in the same place (all are, until the first session at which there is a choice) the round
is computed once for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ebbflow.core import counters, vector
from ebbflow.core.algorithm import Algorithm, Broadcast, Upload
from ebbflow.core.counters import Cost, Costs, CountedBatches, Payload, charged
from ebbflow.core.errors import TrainingError
from ebbflow.core.evaluate import Score, labelled
from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import Cohort, Engine, Lane
from ebbflow.core.rates import Rates
from ebbflow.core.signature import nearly_uniform
from ebbflow.core.types import Entry, Examples, Initialiser, ModelState, Past, Session, Start, State
from ebbflow.engines import Sequential
from ebbflow.engines.texts.symbolic import is_packed, laid_out
from ebbflow.runs.records import Round
from ebbflow.simulation.world import World, draw_cohort, draw_participants, population


@dataclass(frozen=True)
class Method:
    """A compared method: a way to start sessions, on an FL algorithm, at its rates.

    ``group`` is the algorithm that it is compared under (the paper runs Continuous on FedAvg
    whatever that is); ``rates(T)`` are eta^(s,t) for t = 1..T of a session of T rounds; ``distil``
    is the algorithm of a session that has a teacher, from the teacher and the labels it knows.
    """

    name: str
    group: str
    initialiser: Initialiser
    algorithm: Algorithm
    rates: Rates
    distil: Callable[[ModelState, tuple[int, ...]], Algorithm] | None = None


@dataclass
class Track:
    """Where one method stands.

    ``model`` is w^(s,t); ``algorithm`` is the running session's, the method's own unless it has a
    teacher; ``server`` and ``clients`` are the algorithm's state; ``pilots`` are the
    final models of the pilot sessions until ``pilot`` is made of them; ``entries`` is the history
    (the lists Q1 and Q2); ``start`` says where the running session started, ``costs`` what it took
    so far. Tensors are replaced, never changed in place, so tracks may share them.
    """

    method: Method
    model: ModelState
    algorithm: Algorithm
    server: State = field(default_factory=dict)
    clients: dict[int, State] = field(default_factory=dict)
    pilots: list[ModelState] = field(default_factory=list)
    pilot: ModelState | None = None
    entries: list[Entry] = field(default_factory=list)
    start: Start | None = None
    costs: Costs = field(default_factory=dict)


class Watcher(Protocol):
    """Someone who follows a simulation: a run folder, a progress bar, a list in memory."""

    def started(self, world: World, session: Session, events: Sequence[dict[str, Any]]) -> None:
        """Hear that a session has been given its starting models, and which."""

    def advanced(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        """Hear that a round is over in every track."""

    def finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        """Hear that a session is over and its models are in the history."""


def new_tracks(world: World, methods: Sequence[Method]) -> list[Track]:
    """Return the methods at the very beginning: w^(1,1) is the same for all."""
    return [Track(method, world.initial, method.algorithm) for method in methods]


def simulate(
    world: World,
    tracks: Sequence[Track],
    engine: Engine,
    watchers: Sequence[Watcher],
    after: tuple[int, int] = (0, 0),
) -> None:
    """Run Algorithm 1 in every track, from the beginning or from where it was left.

    Args:
        world: Data, model and sessions.
        tracks: The methods; they hold the final models afterwards.
        engine: Trains a cohort of devices.
        watchers: Told of every session's start, every round and every session's end.
        after: Session and round that were already completed; (s, 0) means that s is over.
    """
    done, completed_rounds = after
    for session in world.sessions:
        if session.index < done or (session.index == done and completed_rounds == 0):
            continue
        first = completed_rounds + 1 if session.index == done else 1
        test = labelled(world.dataset.test, session.labels)
        if first == 1:
            for track in tracks:
                _begin(world, track, session, engine)
            events = _start_events(world, tracks, session, engine, test)
            for watcher in watchers:
                watcher.started(world, session, events)
        _train_session(world, tracks, session, first, engine, test, watchers)
        for track in tracks:
            _finish(world, track, session)
        for watcher in watchers:
            watcher.finished(world, session, tracks)


def _train_session(
    world: World,
    tracks: Sequence[Track],
    session: Session,
    first: int,
    engine: Engine,
    test: Examples,
    watchers: Sequence[Watcher],
) -> None:
    """Train the rounds of a session from ``first`` on.

    A round's models are evaluated while the next one trains; only then do the watchers hear of it.
    """
    for track in tracks:
        track.algorithm = _algorithm(world, track, session)
    leaders = _leaders(tracks)
    report: Callable[[], None] = _nothing
    try:
        for t in range(first, session.rounds + 1):
            present = _advance(world, tracks, leaders, session, t, engine)
            scores = _evaluate(tracks, leaders, engine, test)
            here = [replace(track) for track in tracks]
            before, report = report, _nothing
            before()
            report = partial(_report, world, session, t, present, here, scores, watchers)
    finally:  # whatever has happened since, a round that is over is not lost
        report()


def _nothing() -> None:
    pass


def _begin(world: World, track: Track, session: Session, engine: Engine) -> None:
    """Choose w^(s,1) and give the algorithm a fresh state."""
    pilot = world.config.pilot
    track.costs = {}
    if session.index <= pilot.sessions or track.pilot is None:
        track.start = Start(track.model)
    else:
        fresh = session.index == pilot.sessions + 1 and not pilot.carry_over
        carried = _move(world.initial if fresh else track.model, "cpu")

        def probe(model: ModelState) -> ModelState:
            return run_probe(world, track.method, session, engine, model, track)

        known = () if fresh else _known(world, session)
        past = Past(track.pilot, tuple(track.entries), known)
        track.start = track.method.initialiser(session, carried, past, probe)
        measured, drawn_on = track.start.distances, list(track.start.weights.values())
        track.costs = charged(track.costs, counters.COEFFICIENTS, Cost(distances=len(measured)))
        mixed = Cost(mixed=len(vector.counting(drawn_on)))
        track.costs = charged(track.costs, counters.CONSTRUCTION, mixed)
    track.model = _move(track.start.model, world.config.device)
    _fresh_state(world, track, session)


def _fresh_state(world: World, track: Track, session: Session) -> None:
    """Reset the algorithm's state, or let returning devices keep theirs (``boundary.state``)."""
    algorithm, theta = track.method.algorithm, track.model.theta
    present = population(session)
    if world.config.boundary.state == "reset" or algorithm.rejoin is None:
        track.server = algorithm.init_server(theta, present)
    else:
        fresh = algorithm.init_client(Broadcast(theta, track.model.buffers, {}))
        here, (model, data) = session.devices, (world.model, world.dataset.train)
        # Of texts one whole vector at a time: all of them at once would be too many.
        states = LazySequence(
            len(here), lambda place: laid_out(track.clients.get(here[place], fresh), model, data)
        )
        sizes = [session.samples(device) for device in session.devices]
        track.server = algorithm.rejoin(theta, present, states, sizes)
    if world.config.boundary.state == "reset":
        track.clients = {}


def _known(world: World, session: Session) -> tuple[int, ...]:
    """Return the labels of the session before this one."""
    return world.sessions[session.index - 2].labels if session.index > 1 else ()


def _algorithm(world: World, track: Track, session: Session) -> Algorithm:
    """Return the session's algorithm: the method's own, or with a teacher the one that distils."""
    teacher = track.start.teacher if track.start is not None else None
    if teacher is None or track.method.distil is None:
        return track.method.algorithm
    return track.method.distil(_move(teacher, world.config.device), _known(world, session))


def _start_events(
    world: World, tracks: Sequence[Track], session: Session, engine: Engine, test: Examples
) -> list[dict[str, Any]]:
    """Return a record of where each method starts and what it drew on, and warnings if need be."""
    scores = _evaluate(tracks, _leaders(tracks), engine, test)()
    return [
        event
        for track, score in zip(tracks, scores, strict=True)
        for event in _events_of(world, track, session, score)
    ]


def _events_of(
    world: World, track: Track, session: Session, score: Score
) -> Iterator[dict[str, Any]]:
    start = track.start or Start(track.model)
    accuracy, loss = score
    probed = start.signature is not None
    about = {
        "algorithm": track.method.group,
        "method": track.method.name,
        "seed": world.seed,
        "session": session.index,
    }
    yield {
        "event": "start",
        **about,
        "devices": list(session.devices),
        "labels": list(session.labels),
        "rounds": session.rounds,
        "accuracy": accuracy,
        "loss": loss,
        "weights": {str(z): weight for z, weight in start.weights.items()},
        "distances": {str(z): distance for z, distance in start.distances.items()},
        "probe_rounds": world.config.probe.rounds if probed else 0,
    }
    choice = world.config.warm_start
    # R = 0 asks for the plain average; everybody else should know that they got it.
    if probed and choice.scale != 0 and nearly_uniform(list(start.weights.values())):
        other = (
            "" if choice.distance == "per_tensor" else ' or set warm_start.distance = "per_tensor"'
        )
        text = (
            f"the weights of the {len(start.weights)} past sessions are nearly uniform, so the "
            f"warm start is close to the plain average: raise warm_start.scale (R, now "
            f"{choice.scale:g}){other}"
        )
        yield {"event": "warning", **about, "text": text}


def run_probe(
    world: World,
    method: Method,
    session: Session,
    engine: Engine,
    model: ModelState,
    payer: Track | None = None,
) -> ModelState:
    """Return w_grad^(s,V+1): V auxiliary rounds from ``model`` on A_grad, all state fresh.

    They are charged to the track that asked for them, if one did.
    """
    choice = world.config.probe
    rate = method.rates(session.rounds)[0]
    lr = {"half": rate / 2, "same": rate}[choice.lr] if isinstance(choice.lr, str) else choice.lr
    sampled = draw_participants(world, session, 0, "probe-participants", choice.share)
    there = _move(model, world.config.device)
    auxiliary = Track(method, there, method.algorithm)
    auxiliary.server = method.algorithm.init_server(there.theta, population(session))
    for v in range(1, choice.rounds + 1):
        steps, batch = choice.steps or 1, choice.batch or 1  # resolved: neither is empty
        cohort = draw_cohort(world, session, v, sampled, steps, batch, "probe")
        (cost,) = _train_round(world, [auxiliary], [lr], cohort, engine)
        if payer is not None:
            payer.costs = charged(payer.costs, counters.PROBE, cost)
    return _move(auxiliary.model, "cpu")


def _advance(
    world: World,
    tracks: Sequence[Track],
    leaders: Sequence[int],
    session: Session,
    t: int,
    engine: Engine,
) -> int:
    """Train round t in every track; return how many devices took part."""
    config = world.config
    present = draw_participants(world, session, t, "participants", config.participation.share)
    batch = config.local.batch or 1
    cohort = draw_cohort(world, session, t, present, config.local.steps, batch, "local")
    ahead = sorted(set(leaders))
    rates = [tracks[i].method.rates(session.rounds)[t - 1] for i in ahead]
    spent = _train_round(world, [tracks[i] for i in ahead], rates, cohort, engine)
    stage = counters.PILOT if session.index <= config.pilot.sessions else counters.MAIN
    costs = dict(zip(ahead, spent, strict=True))
    for track, leader in zip(tracks, leaders, strict=True):
        led = tracks[leader]
        track.model, track.server, track.clients = led.model, led.server, led.clients
        # Whoever follows is charged as if it had been alone.
        track.costs = charged(track.costs, stage, costs[leader])
    return len(present)


def _evaluate(
    tracks: Sequence[Track], leaders: Sequence[int], engine: Engine, test: Examples
) -> Callable[[], list[Score]]:
    """Begin to evaluate w^(s,t+1), once for all tracks that are in the same place."""
    ahead = sorted(set(leaders))
    scores = engine.evaluate([tracks[i].model for i in ahead], test)

    def wait() -> list[Score]:
        found = dict(zip(ahead, scores(), strict=True))
        return [found[leader] for leader in leaders]

    return wait


def _report(
    world: World,
    session: Session,
    t: int,
    participants: int,
    tracks: Sequence[Track],
    scores: Callable[[], list[Score]],
    watchers: Sequence[Watcher],
) -> None:
    """Tell the watchers of round t, with the tracks as they were when it was over."""
    rounds = [
        Round(
            algorithm=track.method.group,
            method=track.method.name,
            seed=world.seed,
            session=session.index,
            round=t,
            accuracy=accuracy,
            loss=loss,
            lr=track.method.rates(session.rounds)[t - 1],
            devices=len(session.devices),
            participants=participants,
        )
        for track, (accuracy, loss) in zip(tracks, scores(), strict=True)
    ]
    for watcher in watchers:
        watcher.advanced(world, session, tracks, rounds)


def _finish(world: World, track: Track, session: Session) -> None:
    """Save w^(s,T+1): for the pilot model, or into the history."""
    # A copy: whatever is done to the running model, the past stays as it was.
    final = ModelState(*(tensor.detach().clone() for tensor in _move(track.model, "cpu")))
    pilot = world.config.pilot
    if session.index <= pilot.sessions:
        track.pilots = [*track.pilots, final]
        if session.index == pilot.sessions:
            track.pilot = vector.mix(
                track.pilots, pilot_weights(len(track.pilots), pilot.combine, pilot.decay)
            )
            track.costs = charged(track.costs, counters.PILOT, Cost(mixed=len(track.pilots)))
            track.pilots = []
        return
    signature = track.start.signature if track.start is not None else None
    entries = [*track.entries, Entry(session.index, final, signature)]
    track.entries = [entries[i] for i in world.retention(entries)]
    rule = world.config.history
    compared = counters.retention(len(entries), rule.keep, rule.limit)
    track.costs = charged(track.costs, counters.RETENTION, compared)


def cost_events(world: World, session: Session, tracks: Sequence[Track]) -> list[dict[str, Any]]:
    """Return what a session that is over has cost each method, and what it keeps."""
    events = []
    for track in tracks:
        # At s = P the pilot sessions' models have just been mixed, and let go.
        temporary = len(track.pilots) or track.costs.get(counters.PILOT, Cost()).mixed
        models = len(track.entries) + (track.pilot is not None)
        signatures = sum(entry.signed for entry in track.entries)
        sizes = world.model.layout.total, world.model.buffer_layout.total
        size = counters.stored_bytes(models, signatures, *sizes)
        stored = counters.Stored(models, signatures, size, temporary)
        events.append(
            {
                "event": counters.EVENT,
                "algorithm": track.method.group,
                "method": track.method.name,
                "seed": world.seed,
                "session": session.index,
                "stages": counters.written(track.costs),
                "stored": asdict(stored),
            }
        )
    return events


def pilot_weights(sessions: int, combine: str, decay: float) -> list[float]:
    """Return the weights of the pilot sessions' models: 1/P each, or the EMA's gamma_s.

    gamma_1 = beta^(P-1) and gamma_s = (1 - beta) beta^(P-s) for s = 2..P, which add up to one.

    >>> pilot_weights(3, "ema", 0.5)
    [0.25, 0.25, 0.5]
    """
    if combine == "average":
        return [1 / sessions] * sessions
    oldest = decay ** (sessions - 1)
    return [oldest] + [(1 - decay) * decay ** (sessions - s) for s in range(2, sessions + 1)]


def _leaders(tracks: Sequence[Track]) -> list[int]:
    """Return for each track the first one that is in the same place and goes the same way."""
    leaders: list[int] = []
    for i, track in enumerate(tracks):
        alike = (j for j in range(i) if leaders[j] == j and _same_place(tracks[j], track))
        leaders.append(next(alike, i))
    return leaders


def _same_place(a: Track, b: Track) -> bool:
    def equal(x: State, y: State) -> bool:
        return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)

    def taught(track: Track) -> ModelState | None:
        return track.start.teacher if track.start is not None else None

    one, other = taught(a), taught(b)
    if (one is None) != (other is None):
        return False
    return (
        a.method.algorithm is b.method.algorithm
        and (one is None or other is None or torch.equal(one.theta, other.theta))
        and a.method.rates is b.method.rates
        and all(torch.equal(x, y) for x, y in zip(a.model, b.model, strict=True))
        and equal(a.server, b.server)
        and a.clients.keys() == b.clients.keys()
        and all(equal(a.clients[device], b.clients[device]) for device in a.clients)
    )


def _train_round(
    world: World, tracks: Sequence[Track], rates: Sequence[float], cohort: Cohort, engine: Engine
) -> list[Cost]:
    """Broadcast, train, add up, take the server's step in every track; return what each costs."""
    taken = CountedBatches(cohort.batches)
    cohort = cohort._replace(batches=taken)
    lanes, costs = [], []
    for track, lr in zip(tracks, rates, strict=True):
        theta, extras = track.algorithm.broadcast(track.model.theta, track.server)
        shared = Broadcast(theta, track.model.buffers, extras)
        lanes.append(Lane(track.algorithm, shared, lr, track.clients))
    try:
        trained = engine(lanes, cohort)
    except RuntimeError as error:
        _explain_divergence(world, lanes, cohort)
        raise TrainingError(
            f"session {cohort.session}, round {cohort.round}: {str(error).splitlines()[0]} (with "
            'engine.kind = "sequential" the same round goes through: use that)'
        ) from error
    for track, lane, (total, clients) in zip(tracks, lanes, trained, strict=True):
        theta, track.server = lane.algorithm.server_step(track.model.theta, track.server, total)
        if world.config.local.radius is not None:
            theta = vector.project(theta, world.config.local.radius)
        if not bool(torch.isfinite(theta).all()):
            _explain_divergence(world, [lane], cohort)
            raise TrainingError(
                f"session {cohort.session}, round {cohort.round}, method {track.method.name}: the "
                "global model is no longer finite though every device's is; lower lr.initial"
            )
        track.model = ModelState(theta, total.buffers / total.samples)
        track.clients = world.states.keep(track.clients, clients)
        costs.append(taken.round(int(total.devices), Payload(_bytes(total), _bytes(lane.shared))))
    return costs


def _bytes(sent: Upload | Broadcast) -> int:
    """Return the bytes of the vectors in a message (its few single numbers are not counted)."""
    vector_of: Tensor = sent.delta if isinstance(sent, Upload) else sent.theta
    sizes = (v.numel() * v.element_size() for v in (vector_of, sent.buffers, *sent.extras.values()))
    return sum(sizes)


def _explain_divergence(world: World, lanes: Sequence[Lane], cohort: Cohort) -> None:
    """Train the round again with the reference engine, which names the device and step at fault."""
    if any(is_packed(state) for lane in lanes for state in lane.clients.values()):
        return  # `SampleSpace`, which keeps states so, looks at every device itself
    Sequential(world.model, world.dataset.train, world.recipe)(lanes, cohort)


def _move(model: ModelState, device: str) -> ModelState:
    return ModelState(model.theta.to(device), model.buffers.to(device))
