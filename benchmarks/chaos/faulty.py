"""Devices at fault: a round without them, bit by bit, and rounds at any rate of dropout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import product
from typing import Any, NamedTuple

import torch

from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.core.local import Cohort, Engine, Lane, Trained
from ebbflow.simulation.building import build_world
from ebbflow.simulation.collecting import Outcome, collect
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import lanes_of, set_up_state
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World, draw_round

SETTING: dict[str, Any] = {
    "methods": ["previous"],
    "seeds": [1],
    "sessions": 2,
    "rounds": 3,
    "partition.devices": 6,
    "data.limit_train": 300,
    "guard.quorum": 0.0,
}
ALGORITHMS = ("fedavg", "scaffold", "fedprox", "fedadam", "moon")
ENGINES = ("vectorised", "sequential")
BAD = (1, 4)
"""The places of the two devices at fault, which are their numbers as well."""
_FAR = {"guard.norm": 100.0}


def _struck(kind: str, **settings: Any) -> dict[str, Any]:
    own = {f"faults.{kind}.{key}": value for key, value in settings.items()}
    return {f"faults.{kind}.devices": [*BAD], **own}


FAULTS: dict[str, dict[str, Any]] = {
    "dropped out before training": _struck("dropout"),
    "dropped out during training": _struck("dropout", when="during"),
    "dropped out after training": _struck("dropout", when="after"),
    "late": _struck("straggler", slowdown=1e9),
    "vanished": _struck("vanishing"),
    "not a number": _struck("nan"),
    "infinite": _struck("infinite"),
    "scaled, norm refused": _struck("scaled", factor=1e4) | _FAR,
    "wrong, norm refused": _struck("wrong", factor=1e4) | _FAR,
    "noise, norm refused": _struck("noise", factor=1e4) | _FAR,
    "flipped, norm refused": _struck("flipped", factor=1e4) | _FAR,
    "manipulated, norm refused": _struck("manipulated", factor=1e4) | _FAR,
}
"""Faults after which two devices are left out of the round."""
RATES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)


def world_of(**keys: Any) -> World:
    """Return a small world with these settings."""
    layers = Layers()
    for key, value in {**SETTING, **keys}.items():
        layers.add_key(key, value, "the trial")
    config = layers.config()
    return build_world(config, experiment.prepared(config, None), 1)


@contextmanager
def first_lane(world: World) -> Iterator[tuple[Engine, Lane]]:
    """Yield the engine, and the first method's side of the first round."""
    with closing(experiment.engine_of(world)) as engine:
        (track,) = new_tracks(world, methods_of(world))
        set_up_state(world, track, world.sessions[0], engine)
        (lane,) = lanes_of([track], [0.05])
        yield engine, lane


def arrived(world: World, t: int = 1) -> Outcome:
    """Return what arrives in a round."""
    with first_lane(world) as (engine, lane):
        return collect(world, engine, [lane], draw_round(world, world.sessions[0], t)).outcomes[0]


def trained(world: World, places: list[int]) -> Trained:
    """Return the sum over these places of the first round, by the engine alone."""
    with first_lane(world) as (engine, lane):
        return engine([lane], draw_round(world, world.sessions[0], 1).only(places))[0]


def same_round(fault: str, algorithm: str, kind: str) -> bool:
    """Whether a round is, to the bit, the one without the devices at fault, and names them."""
    usual = {"algorithm": [algorithm], "engine.kind": kind}
    outcome = arrived(world_of(**usual, **FAULTS[fault]))
    if outcome.trained is None or outcome.left_out is None or outcome.left_out.devices != BAD:
        return False
    honest = [place for place in range(6) if place not in BAD]
    (ours, states), (theirs, expected) = outcome.trained, trained(world_of(**usual), honest)
    pairs = [*zip(ours[:4], theirs[:4], strict=True)]
    pairs += [(ours.extras[name], theirs.extras[name]) for name in theirs.extras]
    for device, state in expected.items():
        if device not in states:
            return False
        pairs += [(states[device][name], state[name]) for name in state]
    return states.keys() == expected.keys() and all(torch.equal(a, b) for a, b in pairs)


class Dropped(NamedTuple):
    """Rounds at a rate of dropout: how many, how many were abandoned, how far weights are off."""

    rate: float
    rounds: int
    abandoned: int
    off: float


def dropped(rate: float, rounds: int) -> Dropped:
    """Return what becomes of rounds in which devices drop out at a rate."""
    world = world_of(**{"rounds": rounds, "faults.dropout.rate": rate, "guard.limit": 10**6})
    abandoned, off = 0, 0.0
    with first_lane(world) as (engine, lane):
        for t in range(1, rounds + 1):
            cohort: Cohort = draw_round(world, world.sessions[0], t)
            (outcome,), lost = collect(world, engine, [lane], cohort)
            kept = [n for place, n in enumerate(cohort.samples) if place not in lost]
            if outcome.trained is None:
                abandoned += 1
                off = max(off, float(bool(kept)))
            else:
                weights = [n / float(outcome.trained[0].samples) for n in kept]
                off = max(off, abs(sum(weights) - 1))
    finished = experiment.run(world.config)
    return Dropped(rate, len(finished.rounds), abandoned, off)


def trials() -> list[tuple[str, str, str]]:
    """Return every fault with every algorithm and engine."""
    return list(product(FAULTS, ALGORITHMS, ENGINES))
