"""One round in any number of tracks (broadcast, local training, aggregation), and the probe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ebbflow.core import counters, vector
from ebbflow.core.algorithm import Broadcast, Upload
from ebbflow.core.counters import Cost, CountedBatches, Payload, charged
from ebbflow.core.errors import TrainingError
from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import Cohort, Engine, Lane, Trained
from ebbflow.core.types import ModelState, Session
from ebbflow.sessions.memory import on_device
from ebbflow.simulation.guard import guarded_rounds
from ebbflow.simulation.methods import Method
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World, draw_cohort, draw_participants, population


def train_round(
    world: World, tracks: Sequence[Track], rates: Sequence[float], cohort: Cohort, engine: Engine
) -> list[Cost]:
    """Train a cohort and take the server's step in every track; return the cost in each."""
    counted = CountedBatches(cohort.batches)
    cohort = cohort._replace(batches=counted)
    lanes, costs = lanes_of(tracks, rates), []
    outcomes = guarded_rounds(engine, lanes, cohort, world.config.guard)
    for track, lane, (trained, refusal, error) in zip(tracks, lanes, outcomes, strict=True):
        track.refusal = refusal
        sent = Payload(*(_bytes(lane.shared.theta, lane.shared) for _ in range(2)))
        if trained is None:
            track.abandoned += 1
            if track.abandoned > world.config.guard.limit:
                raise error or _too_many(track, lane, cohort, engine)
        else:
            _step(world, track, lane, cohort, trained, engine)
            sent = sent._replace(up=_bytes(trained[0].delta, trained[0]))
        costs.append(counted.round(len(cohort.devices), sent))
    return costs


def _step(
    world: World, track: Track, lane: Lane, cohort: Cohort, trained: Trained, engine: Engine
) -> None:
    """Take the server's step."""
    total, clients = trained
    theta, server = lane.algorithm.server_step(track.model.theta, track.server, total)
    if world.config.local.radius is not None:
        theta = vector.project(theta, world.config.local.radius)
    if not bool(torch.isfinite(theta).all()):
        engine.explain([lane], cohort)
        raise TrainingError(
            f"session {cohort.session}, round {cohort.round}, method {track.method.name}: the "
            "global model is no longer finite though every device's is; lower lr.initial"
        )
    track.server, track.abandoned = server, 0
    track.model = ModelState(theta, total.buffers / total.samples)
    track.clients = world.states.keep(track.clients, clients)


def _too_many(track: Track, lane: Lane, cohort: Cohort, engine: Engine) -> TrainingError:
    """Return the error after too many abandoned rounds, unless the engine has a better one."""
    engine.explain([lane], cohort)
    refused = len(track.refusal.devices) if track.refusal else 0
    return TrainingError(
        f"session {cohort.session}, round {cohort.round}, method {track.method.name}: updates "
        f"of {refused} of {len(cohort.devices)} devices were refused, and {track.abandoned} "
        "rounds in a row abandoned; lower lr.initial, or raise guard.limit"
    )


def lanes_of(tracks: Sequence[Track], rates: Sequence[float]) -> list[Lane]:
    """Return each track's side of a round: its algorithm, broadcast, rate and device states."""
    lanes = []
    for track, lr in zip(tracks, rates, strict=True):
        theta, extras = track.algorithm.broadcast(track.model.theta, track.server)
        shared = Broadcast(theta, track.model.buffers, extras)
        lanes.append(Lane(track.algorithm, shared, lr, track.clients))
    return lanes


def run_probe(
    world: World,
    method: Method,
    session: Session,
    engine: Engine,
    model: ModelState,
    payer: Track | None = None,
) -> ModelState:
    """Return w_grad^(s,V+1): V auxiliary rounds from ``model`` on A_grad, all state fresh.

    Their cost is added to the track that asked for them, if any.
    """
    choice = world.config.probe
    rate = method.rates(session.rounds)[0]
    lr = {"half": rate / 2, "same": rate}[choice.lr] if isinstance(choice.lr, str) else choice.lr
    sampled = draw_participants(world, session, 0, "probe-participants", choice.share)
    pilot = on_device(model, world.config.device)
    auxiliary = Track(model=pilot, method=method, algorithm=method.algorithm)
    auxiliary.server = method.algorithm.init_server(pilot.theta, population(session))
    for v in range(1, choice.rounds + 1):
        cohort = draw_cohort(world, session, v, sampled, choice.steps, choice.batch, "probe")
        (cost,) = train_round(world, [auxiliary], [lr], cohort, engine)
        if payer is not None:
            payer.costs = charged(payer.costs, counters.PROBE, cost)
    return on_device(auxiliary.model, "cpu")


def set_up_state(world: World, track: Track, session: Session, engine: Engine) -> None:
    """Reset the algorithm's state, or let returning devices keep theirs (``boundary.state``)."""
    algorithm, theta = track.method.algorithm, track.model.theta
    present = population(session)
    if world.config.boundary.state == "reset" or algorithm.rejoin is None:
        track.server = algorithm.init_server(theta, present)
    else:
        fresh = algorithm.init_client(Broadcast(theta, track.model.buffers, {}))
        devices = session.devices
        states = LazySequence(len(devices), lambda place: track.clients.get(devices[place], fresh))
        sizes = [session.samples(device) for device in devices]
        track.server = algorithm.rejoin(theta, present, engine.mean_state(states, sizes))
    if world.config.boundary.state == "reset":
        track.clients = {}


def _bytes(vector_of: Tensor, sent: Upload | Broadcast) -> int:
    """Return the bytes of the vectors in a message; its few scalars are not counted."""
    vectors = (vector_of, sent.buffers, *sent.extras.values())
    return sum(each.numel() * each.element_size() for each in vectors)
