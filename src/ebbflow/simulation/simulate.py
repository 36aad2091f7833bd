"""The paper's Algorithm 1, for any number of methods side by side.

Read it next to the paper. A session begins with "Pseudo-Gradient Computation" and "Initial Model
Construction" and ends by saving w^(s,T+1); `ebbflow.sessions.memory` does both. In between, the
rounds of "Main Training" and of "Pilot Preparation" are the same. The rest is in other modules:
methods in lockstep (`lockstep`), a single round (`rounds`), recorded events (`events`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ebbflow.core import vector
from ebbflow.core.errors import TrainingError
from ebbflow.core.local import Cohort, Engine
from ebbflow.core.start import DevicesPresent
from ebbflow.core.survey import Panel, SurveyPlan
from ebbflow.core.types import ModelState, Session
from ebbflow.runs.records import Round
from ebbflow.sessions.memory import begin, finish, on_device
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    RoundFinished,
    SessionFinished,
    SessionStarted,
)
from ebbflow.simulation.events import (
    cost_events,
    ended_event,
    left_out_events,
    start_events,
    tested_events,
    with_finish,
    with_start,
)
from ebbflow.simulation.lockstep import Delayed, Lockstep, Scores
from ebbflow.simulation.privacy import PrivatePanel
from ebbflow.simulation.rounds import run_probe, set_up_state
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.simulation.testing import (
    note_what_was_reached,
    refuse_undefined,
    session_test,
)
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World, draw_round


def simulate(
    world: World,
    tracks: Sequence[Track],
    engine: Engine,
    callbacks: Sequence[Callback],
    after: tuple[int, int] = (0, 0),
) -> None:
    """Run Algorithm 1 in every track, from the beginning or from where it stopped.

    Args:
        world: Data, model and sessions.
        tracks: The methods; afterwards they hold the final models. A method that diverges ends
            alone: it says why in ``ended``, and the others go on.
        engine: Trains a cohort of devices.
        callbacks: Told of every session's start and end, and of every round.
        after: The session and round already completed; (s, 0) means all of session s.
    """
    for session, first in _remaining(world.sessions, after):
        tell = partial(_tell_ended, world, session, callbacks)
        test = session_test(world, session)
        if first == 1:
            for track in tracks:
                begin_session(world, track, session, engine)
            tell(0, tracks)
            tracks = _going_on(tracks)
        if not tracks:
            return
        for track in tracks:
            _adapt_algorithm(world, track)
        lockstep = Lockstep(world, tracks, engine)
        if first == 1:
            scores = lockstep.evaluate(test)()
            refuse_undefined(session, scores)
            routes = lockstep.routes(draw_round(world, session, 1), session.rounds)
            recorded = start_events(world, session, tracks, scores, routes)
            began = SessionStarted(world=world, session=session, tracks=tracks, recorded=recorded)
            for callback in callbacks:
                callback.session_started(began)
        with Delayed() as reports:
            for t in range(first, session.rounds + 1):
                cohort = draw_round(world, session, t)
                lockstep.train(cohort, session.rounds)
                if any(track.ended for track in tracks):
                    reports.add(partial(tell, t, tracks))
                    tracks = _going_on(tracks)
                    if not tracks:
                        return
                    lockstep = Lockstep(world, tracks, engine)
                scoring, snapshot = lockstep.evaluate(test), lockstep.snapshot()
                reports.add(partial(_report, world, session, cohort, snapshot, scoring, callbacks))
        final = lockstep.evaluate(world.dataset.test)()
        note_what_was_reached(world, session, tracks, final)
        for track in tracks:
            _finish(world, track, session)
        recorded = [*tested_events(world, session, tracks), *cost_events(world, session, tracks)]
        over = SessionFinished(world=world, session=session, tracks=tracks, recorded=recorded)
        for callback in callbacks:
            callback.session_finished(over)


def _remaining(
    sessions: Sequence[Session], after: tuple[int, int]
) -> Iterator[tuple[Session, int]]:
    """Yield the unfinished sessions, each with its first remaining round."""
    done, completed = after
    for session in sessions:
        if session.index > done:
            yield session, 1
        elif session.index == done and completed > 0:
            yield session, completed + 1


def begin_session(world: World, track: Track, session: Session, engine: Engine) -> None:
    """Choose w^(s,1), and set up the algorithm's state."""

    def probe(model: ModelState) -> ModelState:
        return run_probe(world, track.method, session, engine, model, track)

    def survey(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
        private = world.config.privacy.clip is not None
        panel = PrivatePanel if private else SimulatedPanel
        return panel(world, session, models, plan, track)

    track.costs, track.asked = {}, ()
    try:
        point = begin(
            track,
            session.index,
            track.method.start,
            world.rules,
            initial=world.initial,
            layout=world.model.layout,
            present=DevicesPresent(probe, survey, session.devices),
            known_labels=world.labels_before(session),
        )
    except TrainingError as error:  # in the probe
        track.ended = str(error)
        return
    if point.kept is not None and world.config.local.radius is not None:
        # A mixture of models within the ball may lie outside it.
        theta = vector.project(point.model.theta, world.config.local.radius)
        inside = point.model._replace(theta=theta)
        track.start = point = point._replace(model=inside, kept=inside)
    track.costs = with_start(track.costs, point)
    track.model = on_device(point.model, world.config.device)
    set_up_state(world, track, session, engine)


def _tell_ended(
    world: World,
    session: Session,
    callbacks: Sequence[Callback],
    t: int,
    tracks: Sequence[Track],
) -> None:
    """Tell the callbacks which methods cannot go on."""
    for track in tracks:
        if track.ended:
            recorded = [ended_event(world, session, t, track)]
            event = MethodEnded(
                world=world, session=session, round=t, track=track, recorded=recorded
            )
            for callback in callbacks:
                callback.method_ended(event)


def _going_on(tracks: Sequence[Track]) -> list[Track]:
    return [track for track in tracks if not track.ended]


def _adapt_algorithm(world: World, track: Track) -> None:
    """Let the method's start adapt the session's algorithm, as Continuous does with a teacher."""
    point, method = track.start, track.method
    track.algorithm = method.algorithm
    if point is None:
        return
    if point.teacher is not None:
        point = point._replace(teacher=on_device(point.teacher, world.config.device))
    track.algorithm = method.start.adapt(method.algorithm, point)


def _finish(world: World, track: Track, session: Session) -> None:
    """Save w^(s,T+1), and add the cost of doing so."""
    history = world.config.history
    track.costs = with_finish(
        track.costs, track, session.index, world.rules, history.keep, history.limit
    )
    finish(track, session.index, world.rules)


def _report(
    world: World,
    session: Session,
    cohort: Cohort,
    tracks: Sequence[Track],
    scores: Scores,
    callbacks: Sequence[Callback],
) -> None:
    """Report a cohort's round to the callbacks, with the tracks as they were at its end."""
    results = [
        Round(
            algorithm=track.method.group,
            method=track.method.name,
            seed=world.seed,
            session=session.index,
            round=cohort.round,
            accuracy=score.accuracy,
            loss=score.loss,
            lr=track.method.rates(session.rounds)[cohort.round - 1],
            devices=len(session.devices),
            participants=len(cohort.devices),
            measures=dict(score.measures) or None,
        )
        for track, score in zip(tracks, scores(), strict=True)
    ]
    event = RoundFinished(
        world=world,
        session=session,
        round=cohort.round,
        participants=cohort.devices,
        results=results,
        tracks=tracks,
        recorded=left_out_events(world, session, tracks),
    )
    for callback in callbacks:
        callback.round_finished(event)
