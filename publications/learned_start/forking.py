"""Forks: at every transition, from the same state of the federation, W rounds from every start.

The federation itself goes on from one of them, the *driver*. Every start draws on the driver's
history, so that a fork compares starts and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from chang2025.cells import Cell
from ebbflow import experiment
from ebbflow.core.evaluate import labelled
from ebbflow.core.files import sha256
from ebbflow.core.local import Engine
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.types import Session
from ebbflow.sessions.memory import finish
from ebbflow.simulation.building import build_world
from ebbflow.simulation.lockstep import Lockstep
from ebbflow.simulation.methods import Method, methods_of
from ebbflow.simulation.simulate import begin_session
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import World, draw_round
from ebbflow.starts import STARTS
from learned_start.rules import LEARNED, Rule


@dataclass(frozen=True)
class ForkCell:
    """One fork study: a setting with one algorithm and seed, its rules, and W.

    ``repeats`` is the number of times that every fork is trained, each time on other mini-batches:
    how far these lie apart is the noise of the comparison. ``order`` names the configured sessions
    that take place, in order, if that is not all of them; ``since`` is the first that is forked.
    """

    setting: Cell
    rules: tuple[Rule, ...]
    rounds: int = 10
    repeats: int = 1
    driver: str = LEARNED
    order: tuple[int, ...] = ()
    since: int = 0

    @property
    def name(self) -> str:
        """The name of its result."""
        return self.setting.name

    @cached_property
    def digest(self) -> str:
        """The digest of everything that the result depends on."""
        about: tuple[Any, ...] = (
            self.setting.digest,
            self.rules,
            self.rounds,
            self.repeats,
            self.driver,
            sorted(STARTS[LEARNED].defaults.items()),
        )
        if self.order or self.since:
            about = (*about, self.order, self.since)
        return sha256(repr(about).encode())[:16]


class ForkRow(NamedTuple):
    """One start at one transition: its accuracies (percent) after each of W rounds.

    ``warned`` says whether the start warned of something, such as answers that contradict each
    other.
    """

    session: int
    rule: str
    repeat: int
    accuracy: tuple[float, ...]
    mixture: dict[str, float]
    warned: bool = False

    @property
    def window(self) -> float:
        """The mean accuracy over the W rounds."""
        return sum(self.accuracy) / len(self.accuracy)


def fork(cell: ForkCell) -> list[ForkRow]:
    """Run a fork study and return a row for every start, transition and repeat."""
    config = cell.setting.config
    data = experiment.prepared(config, None)
    torch.set_num_threads(1)
    world = build_world(config, data, cell.setting.seed)
    if cell.order:
        chosen_sessions = [world.sessions[number - 1] for number in cell.order]
        renumbered = [replace(s, index=i) for i, s in enumerate(chosen_sessions, start=1)]
        world = replace(world, sessions=renumbered)
    (usual,) = methods_of(world)
    methods = {
        rule.name: replace(usual, name=rule.name, start=rule.build(config.parameters))
        for rule in cell.rules
    }
    chosen = methods[cell.driver]
    (driver,) = new_tracks(world, [replace(chosen, start=_signed(chosen.start))])
    rows: list[ForkRow] = []
    with closing(experiment.engine_of(world)) as engine:
        for session in world.sessions:
            rows += _session(cell, world, engine, session, driver, list(methods.values()))
    return rows


def _session(
    cell: ForkCell,
    world: World,
    engine: Engine,
    session: Session,
    driver: Track,
    methods: Sequence[Method],
) -> list[ForkRow]:
    """Fork at a session's start, if there is a choice, and train the driver to its end."""
    rows = []
    if len(driver.past) > 1 and session.index >= cell.since:
        tracks = [replace(driver, method=method) for method in methods]
        for track in tracks:
            begin_session(world, track, session, engine)
        for repeat in range(cell.repeats):
            accuracies = _rounds(cell, world, engine, session, tracks, repeat)
            for track, accuracy in zip(tracks, accuracies, strict=True):
                place = session.index, track.method.name, repeat
                mixture = dict(track.start.mixture) if track.start else {}
                warned = track.start is not None and bool(track.start.warnings)
                rows.append(ForkRow(*place, accuracy, mixture, warned))
    begin_session(world, driver, session, engine)
    lockstep = Lockstep(world, [driver], engine)
    for t in range(1, session.rounds + 1):
        lockstep.train(draw_round(world, session, t), session.rounds)
    finish(driver, session.index, world.rules)
    return rows


def _rounds(
    cell: ForkCell,
    world: World,
    engine: Engine,
    session: Session,
    tracks: Sequence[Track],
    repeat: int,
) -> list[tuple[float, ...]]:
    """Train W rounds from every start and return the accuracies after each of them."""
    test = labelled(world.dataset.test, session.labels)
    forks = [replace(track) for track in tracks]
    lockstep = Lockstep(world, forks, engine)
    purpose = f"local-{repeat}" if repeat else "local"  # the first draws are a run's own
    curves: list[list[float]] = []
    for t in range(1, min(cell.rounds, session.rounds) + 1):
        lockstep.train(draw_round(world, session, t, purpose), session.rounds)
        curves.append([score.accuracy for score in lockstep.evaluate(test)()])
    return [tuple(curve) for curve in zip(*curves, strict=True)]


def _signed(start: Start) -> Start:
    """Return the start that also signs sessions, as the paper's start needs it of the past."""

    def choose(situation: Situation) -> StartingPoint:
        signature = situation.probe(situation.pilot).theta - situation.pilot.theta
        point = start.choose(situation)
        kept = point.kept if point.kept is not None else point.model
        return point._replace(signature=signature, kept=kept)

    return start._replace(choose=choose)


def as_json(rows: Sequence[ForkRow]) -> list[dict[str, Any]]:
    """Return rows as they are kept, accuracies to three digits after the point."""
    return [
        {
            **row._asdict(),
            "accuracy": [round(value, 3) for value in row.accuracy],
            "mixture": {name: round(weight, 4) for name, weight in row.mixture.items()},
        }
        for row in rows
    ]
