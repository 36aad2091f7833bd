"""One round in any number of tracks (broadcast, local training, aggregation), and the probe."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ebbflow.core import counters, vector
from ebbflow.core.algorithm import Broadcast, Upload
from ebbflow.core.counters import Cost, CountedBatches, Payload, charged
from ebbflow.core.errors import TrainingError
from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import Cohort, Engine, Lane
from ebbflow.core.types import ModelState, Session
from ebbflow.sessions.memory import on_device
from ebbflow.simulation.collecting import Outcome, collect
from ebbflow.simulation.guard import NOT_FINITE
from ebbflow.simulation.methods import Method
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World, draw_cohort, draw_participants, population


def train_round(
    world: World, tracks: Sequence[Track], rates: Sequence[float], cohort: Cohort, engine: Engine
) -> list[Cost]:
    """Train a cohort and take the server's step in every track; return the cost in each.

    A track that cannot go on says so in ``ended``, and the others are not disturbed.
    """
    counted = CountedBatches(cohort.batches)
    places = {device: place for place, device in enumerate(cohort.devices)}

    def note(device: int, steps: int, samples: int) -> None:
        counted.note(places[device], steps, samples)

    cohort = cohort._replace(batches=counted, counted=note)
    lanes, costs = lanes_of(tracks, rates), []
    outcomes, lost = collect(world, engine, lanes, cohort)
    for place, loss in lost.items():
        counted.made(place, loss.worked)
    sent = len(cohort.devices) - sum(not loss.sent for loss in lost.values())
    for track, lane, outcome in zip(tracks, lanes, outcomes, strict=True):
        down = _bytes(lane.shared.theta, lane.shared)
        up = _bytes(outcome.trained[0].delta, outcome.trained[0]) if outcome.trained else down
        costs.append(counted.round(sent, Payload(up, down)))
        track.left_out = outcome.left_out
        try:
            _step(world, track, lane, cohort, outcome, engine)
        except TrainingError as error:
            track.ended = str(error)
    return costs


def _step(
    world: World, track: Track, lane: Lane, cohort: Cohort, outcome: Outcome, engine: Engine
) -> None:
    """Take the server's step, or leave the model as it is if the round is abandoned."""
    if outcome.trained is None:
        track.abandoned += 1
        if outcome.left_out is None or track.abandoned > world.config.guard.limit:
            raise outcome.error or _too_many(track, lane, cohort, engine)
        return
    total, clients = outcome.trained
    theta, server = lane.algorithm.server_step(track.model.theta, track.server, total)
    if world.config.local.radius is not None:
        theta = vector.project(theta, world.config.local.radius)
    if not vector.all_finite(theta):
        engine.explain([lane], cohort)
        raise TrainingError(
            f"session {cohort.session}, round {cohort.round}: the global model is no longer "
            "finite though every device's is; lower lr.initial"
        )
    track.server, track.abandoned = server, 0
    track.model = ModelState(theta, total.buffers / total.samples)
    track.clients = world.states.keep(track.clients, clients)


def _too_many(track: Track, lane: Lane, cohort: Cohort, engine: Engine) -> TrainingError:
    """Return the error after too many abandoned rounds, unless the engine has a better one."""
    devices, reasons = track.left_out[1:3] if track.left_out else ((), ())
    if NOT_FINITE in reasons:
        engine.explain([lane], cohort)
    again = f", the {track.abandoned}th in a row," if track.abandoned > 3 else ""
    return TrainingError(
        f"session {cohort.session}, round {cohort.round}: the round{again} is abandoned, because "
        f"{len(devices)} of {len(cohort.devices)} updates are missing "
        f"({', '.join(dict.fromkeys(reasons))}); lower guard.quorum, or raise guard.limit"
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
        if auxiliary.ended:
            raise TrainingError(auxiliary.ended)
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
