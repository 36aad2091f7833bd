"""Events that a run records besides its rounds: session starts, costs and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from ebbflow.core import counters, vector
from ebbflow.core.counters import Cost, Costs, Stored, charged
from ebbflow.core.evaluate import Score
from ebbflow.core.local import Route
from ebbflow.core.start import StartingPoint
from ebbflow.core.types import Session
from ebbflow.sessions.memory import Memory, SessionRules
from ebbflow.simulation.scores import FinalScores
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World


def start_events(
    world: World,
    session: Session,
    tracks: Sequence[Track],
    scores: Sequence[Score],
    routes: Sequence[Route],
) -> list[dict[str, Any]]:
    """Return events that say where each method starts and how it is trained, and warnings.

    What concerns the data, the weights or the devices comes with the first session and names no
    method.
    """
    return [*_of_run(world, session)] + [
        event
        for track, score, route in zip(tracks, scores, routes, strict=True)
        for event in _of_start(world, track, session, score, route)
    ]


NAMES, NOTE, TESTED = "names", "note", "tested"


_name = cache(str)  # a long past is named anew in every session


def _of_run(world: World, session: Session) -> Iterator[dict[str, Any]]:
    """Yield what is to be said once: what devices are called, and sentences for the user."""
    if session.index > 1:
        return
    if world.names:
        yield {"event": NAMES, "seed": world.seed, "names": list(world.names)}
    about = {"seed": world.seed, "session": session.index}
    for kind, texts in ((NOTE, world.dataset.notes), ("warning", world.warnings)):
        for text in texts:
            yield {"event": kind, **about, "text": text}


def _of_start(
    world: World, track: Track, session: Session, score: Score, route: Route
) -> Iterator[dict[str, Any]]:
    point = track.start or StartingPoint(track.model)
    accuracy, loss, _ = score
    about = _about(world, track, session)
    drawn_on = measured = list(map(_name, point.weights))
    if list(point.distances) != list(point.weights):
        measured = list(map(_name, point.distances))
    learned = {"mixture": dict(point.mixture), "asked": list(track.asked)} if track.asked else {}
    yield {
        "event": "start",
        **about,
        "devices": list(session.devices),
        "samples": [session.samples(device) for device in session.devices],
        "smallest_batch": world.smallest_batch,
        "labels": list(session.labels),
        "rounds": session.rounds,
        "accuracy": accuracy,
        "loss": loss,
        "weights": dict(zip(drawn_on, point.weights.values(), strict=True)),
        "distances": dict(zip(measured, point.distances.values(), strict=True)),
        **learned,
        "probe_rounds": world.config.probe.rounds if point.signature is not None else 0,
        "path": route.path,
        "path_reason": route.reason,
    }
    for text in point.warnings:
        yield {"event": "warning", **about, "text": text}


def left_out_events(
    world: World, session: Session, tracks: Sequence[Track]
) -> list[dict[str, Any]]:
    """Return events that name the participants that the last round went without."""
    return [
        {
            "event": "left_out",
            **_about(world, track, session),
            "round": track.left_out.round,
            "devices": list(track.left_out.devices),
            "reasons": list(track.left_out.reasons),
            "abandoned": track.left_out.abandoned,
        }
        for track in tracks
        if track.left_out is not None
    ]


ENDED = "ended"
"""The name of the event that says that a method cannot go on."""


def ended_event(world: World, session: Session, t: int, track: Track) -> dict[str, Any]:
    """Return the event that a method has ended in round ``t``, or in round 0 while it began."""
    return {"event": ENDED, **_about(world, track, session), "round": t, "text": track.ended}


def cost_events(world: World, session: Session, tracks: Sequence[Track]) -> list[dict[str, Any]]:
    """Return events that say what a finished session has cost each method, and what it keeps."""
    return [
        {
            "event": counters.EVENT,
            **_about(world, track, session),
            "stages": counters.written(track.costs),
            "stored": asdict(_stored(world, track)),
        }
        for track in tracks
    ]


def tested_events(world: World, session: Session, tracks: Sequence[Track]) -> list[dict[str, Any]]:
    """Return events that say what the session's final models achieve on all test samples."""
    return [
        {
            "event": TESTED,
            **_about(world, track, session),
            "all": track.reached.accuracy,
            **_by_device(track.reached),
        }
        for track in tracks
        if track.reached is not None
    ]


def _by_device(reached: FinalScores) -> dict[str, Any]:
    if reached.devices is None:
        return {}
    each = {str(device): value for device, value in reached.each.items()}
    return {"devices": reached.devices._asdict(), "each": each}


def _stored(world: World, track: Track) -> Stored:
    # At s = P the pilot sessions' models have just been averaged and deleted.
    temporary = len(track.pilots) or track.costs.get(counters.PILOT, Cost()).mixed
    starts = sum([session.started for session in track.past])
    models = len(track.past) + starts + (track.pilot is not None)
    signatures = sum([session.signed for session in track.past])
    sizes = world.model.layout.total, world.model.buffer_layout.total
    return Stored(models, signatures, counters.stored_bytes(models, signatures, *sizes), temporary)


def _about(world: World, track: Track, session: Session) -> dict[str, Any]:
    return {
        "algorithm": track.method.group,
        "method": track.method.name,
        "seed": world.seed,
        "session": session.index,
    }


# --- costs of beginning and finishing a session --------------------------------------------------


def with_start(costs: Costs, point: StartingPoint) -> Costs:
    """Return the costs plus those of a starting point: distances measured, models averaged."""
    costs = charged(costs, counters.COEFFICIENTS, Cost(distances=len(point.distances)))
    drawn_on = vector.counting(list((point.mixture or point.weights).values()))
    return charged(costs, counters.CONSTRUCTION, Cost(mixed=len(drawn_on)))


def with_finish(
    costs: Costs, memory: Memory, session: int, rules: SessionRules, keep: str, limit: int | None
) -> Costs:
    """Return the costs plus those of finishing a session, which is about to happen.

    ``keep`` and ``limit`` name the retention rule, of which only ``diverse`` costs anything.
    """
    if session == rules.pilot_sessions:
        return charged(costs, counters.PILOT, Cost(mixed=len(memory.pilots) + 1))
    if rules.is_pilot(session):
        return costs
    compared = counters.retention(len(memory.past) + 1, keep, limit)
    return charged(costs, counters.RETENTION, compared)
