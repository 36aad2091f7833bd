"""A past in which some stored sessions are malicious: what becomes of each start.

A poisoned session's final and starting models are replaced, and its signature claims to be the one
that is just being looked for: as close as a signature can be. Which sessions are poisoned is drawn
once for all: what was stored does not change afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import torch

from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.start import Situation, StartingPoint
from ebbflow.core.types import ModelState, PastSession
from ebbflow.runs.records import Round
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import Callback, RoundFinished
from ebbflow.simulation.methods import Method, methods_of
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World

SHARES = (0.01, 0.05, 0.2)
METHODS = ("learned", "warm_start", "average", "previous")
SETTING: dict[str, Any] = {
    "dataset": "mnist",
    "methods": [*METHODS],
    "seeds": [100, 200, 300],
    "sessions": 60,
    "rounds": 10,
    "data.limit_train": 20_000,
    "schedule.kind": "random",
    "partition.devices": 20,
    "partition.overlap": 0.0,
}
FIRST = 20
"""Sessions before this one have too short a past."""

Poison = Callable[[ModelState, int], ModelState]


def _random(model: ModelState, session: int) -> ModelState:
    draw = torch_generator("poison", session)
    theta = torch.randn(model.theta.shape, generator=draw).to(model.theta)
    return model._replace(theta=theta * model.theta.norm() / theta.norm())


def _half_random(model: ModelState, session: int) -> ModelState:
    """Return a model that is not so easily told from an honest one."""
    return model._replace(theta=(model.theta + _random(model, session).theta) / 2)


POISONS: dict[str, Poison] = {
    "random": _random,
    "half of it random": _half_random,
    "flipped, 4 times as long": lambda model, _: model._replace(theta=-4 * model.theta),
    "1000 times as long": lambda model, _: model._replace(theta=1000 * model.theta),
    "not a number": lambda model, _: model._replace(theta=model.theta * torch.nan),
}


class Poisoned(NamedTuple):
    """The mean accuracy of every start, in percent."""

    poison: str
    share: float
    accuracies: tuple[float, ...]


def poisoned(**changes: Any) -> list[Poisoned]:
    """Return the accuracies with an honest past, then with every poison and share."""
    layers = Layers()
    for key, value in {**SETTING, **changes}.items():
        layers.add_key(key, value, "the trial")
    config = layers.config()
    data = experiment.prepared(config, None)
    worlds = [build_world(config, data, seed) for seed in config.seeds]
    found = [Poisoned("none", 0.0, _accuracies(worlds, None, 0.0))]
    return found + [
        Poisoned(name, share, _accuracies(worlds, poison, share))
        for name, poison in POISONS.items()
        for share in SHARES
    ]


class _Accuracies(Callback):
    def __init__(self) -> None:
        self.rounds: list[Round] = []

    def round_finished(self, event: RoundFinished) -> None:
        if event.session.index >= min(FIRST, len(event.world.sessions)):
            self.rounds += event.results


def _accuracies(worlds: Sequence[World], poison: Poison | None, share: float) -> tuple[float, ...]:
    heard = _Accuracies()
    for world in worlds:
        methods = methods_of(world)
        if poison is not None:
            malicious = _malicious(world, share)
            methods = [_with_poison(method, poison, malicious) for method in methods]
        with closing(experiment.engine_of(world)) as engine:
            simulate(world, new_tracks(world, methods), engine, [heard])
    return tuple(
        fmean(r.accuracy for r in heard.rounds if r.method == method.name) for method in methods
    )


def _malicious(world: World, share: float) -> frozenset[int]:
    """Return a share of the sessions that become past ones, rounded up."""
    sessions = range(world.rules.pilot_sessions + 1, len(world.sessions))
    drawn = {session: generator("poisoned", session).random() for session in sessions}
    return frozenset(sorted(sessions, key=drawn.__getitem__)[: math.ceil(share * len(sessions))])


def _with_poison(method: Method, poison: Poison, malicious: frozenset[int]) -> Method:
    honest = method.start.choose

    def choose(situation: Situation) -> StartingPoint:
        shown: list[torch.Tensor] = []

        def probe(model: ModelState) -> ModelState:
            after = situation.probe(model)
            shown.append(after.theta - model.theta)
            return after

        def seen(past: PastSession) -> PastSession:
            if past.number not in malicious:
                return past
            start = None if past.start is None else poison(past.start, past.number)
            signature = shown[0] if shown and past.signed else past.signature
            model = poison(past.model, past.number)
            return PastSession(past.number, model, signature, start, past.devices)

        class Past(tuple[PastSession, ...]):
            """Sessions that are looked at once the probe has been run."""

            __slots__ = ()

            def __iter__(self) -> Any:
                return map(seen, super().__iter__())

            def __getitem__(self, place: Any) -> Any:
                found = super().__getitem__(place)
                return [seen(each) for each in found] if isinstance(place, slice) else seen(found)

        return honest(replace(situation, past=Past(situation.past), probe=probe))

    return replace(method, start=method.start._replace(choose=choose))
