"""The same question within a session: every few rounds, over the recent global models.

A learned step replaces the global model by the best mixture of the last ones, chosen as at a
session's start. It is compared round by round with algorithms that speed up the server's steps for
nothing. What a step costs is a survey's cost, as at a session's start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from chang2025.cells import Cell
from ebbflow import experiment
from ebbflow.core.evaluate import labelled
from ebbflow.core.files import sha256
from ebbflow.core.survey import SurveyPlan
from ebbflow.core.types import ModelState, Session
from ebbflow.core.vector import mix
from ebbflow.runs.records import read_json, write_json
from ebbflow.sessions.memory import on_device
from ebbflow.simulation.building import build_world
from ebbflow.simulation.lockstep import Lockstep
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import set_up_state
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World, draw_round
from ebbflow.starts.mixing import best_mixture
from learned_start.charged import Downlink, mean_within

ALGORITHMS = ("fedavg", "fedavgm", "fedadam", "fedacg", "scaffold")
EVERY = 5
"""Rounds between two learned steps."""
RECENT = 6
"""Recent global models that are mixed, beside the initial one."""
ROUNDS = 60
DEVICES = 30


class WithinRow(NamedTuple):
    """One algorithm with or without learned steps: accuracies after each round."""

    algorithm: str
    steps: bool
    seed: int
    accuracy: tuple[float, ...]
    digest: str = ""


def setting(algorithm: str, seed: int) -> Cell:
    """Return a single session of devices with all labels."""
    values: dict[str, Any] = {
        "dataset": "mnist",
        "algorithm": [algorithm],
        "methods": ["previous"],
        "seeds": [seed],
        "sessions": 1,
        "rounds": ROUNDS,
        "partition.overlap": 1.0,
        "partition.devices": DEVICES,
    }
    return Cell(f"within-{algorithm}-s{seed}", values)


def within_digest(algorithm: str, seed: int) -> str:
    """Return the digest of what a row depends on."""
    about = (setting(algorithm, seed).digest, EVERY, RECENT, ROUNDS)
    return sha256(repr(about).encode())[:16]


def within(algorithm: str, seed: int, learned: bool) -> WithinRow:
    """Train one session, with learned steps or without."""
    config = setting(algorithm, seed).config
    data = experiment.prepared(config, None)
    torch.set_num_threads(1)
    world = build_world(config, data, seed)
    (session,) = world.sessions
    test = labelled(data.test, session.labels)
    (track,) = new_tracks(world, methods_of(world))
    recent: list[ModelState] = [track.model]
    accuracies = []
    with closing(experiment.engine_of(world)) as engine:
        set_up_state(world, track, session, engine)
        lockstep = Lockstep(world, [track], engine)
        for t in range(1, ROUNDS + 1):
            lockstep.train(draw_round(world, session, t), ROUNDS)
            recent = [recent[0], *[*recent[1:], track.model][-RECENT:]]
            if learned and t % EVERY == 0:
                # Other samples each time: draws are named by the session's number.
                asked = replace(session, index=1000 + t)
                track.model = _stepped(world, asked, recent[::-1])
                recent[-1] = track.model
            (score,) = lockstep.evaluate(test)()
            accuracies.append(score.accuracy)
    digest = within_digest(algorithm, seed)
    return WithinRow(algorithm, learned, seed, tuple(accuracies), digest)


def _stepped(world: World, session: Session, models: Sequence[ModelState]) -> ModelState:
    """Return the best mixture of recent models."""
    models = [on_device(model, "cpu") for model in models]
    panel = SimulatedPanel(world, session, models, SurveyPlan())
    weights = best_mixture(panel, len(models), range(len(models)))
    return on_device(mix(models, weights.tolist()), world.config.device)


def step_bill(downlink: Downlink) -> float:
    """Return the bytes of a learned step as a part of those of a round.

    A round sends the model down and up; a step sends ``RECENT + 1`` models at half the precision to
    some of the devices. A copy for all counts once.
    """
    unicast = downlink == "unicast"
    asked, told = (min(SurveyPlan().devices, DEVICES), DEVICES) if unicast else (1, 1)
    return (RECENT + 1) / 2 * asked / (told + DEVICES)


def at_equal_bytes(row: WithinRow, downlink: Downlink) -> float:
    """Return the mean accuracy over as many bytes as all rounds take without learned steps."""
    bill = step_bill(downlink) if row.steps else 0.0
    lengths = [1 + bill * (t % EVERY == 0) for t in range(1, len(row.accuracy) + 1)]
    return mean_within(row.accuracy, lengths, budget=len(lengths))


# --- keeping -------------------------------------------------------------------------------------

FILE = "within.json"


def run_within(seeds: Sequence[int], results: Path, say: Callable[[str], None] = print) -> None:
    """Run what is missing, and keep it."""
    rows = read_within(results)
    done = {row[:3] for row in rows}
    results.mkdir(parents=True, exist_ok=True)
    for seed, algorithm, steps in product(seeds, ALGORITHMS, (False, True)):
        if (algorithm, steps, seed) not in done:
            rows.append(within(algorithm, seed, steps))
            content = [{**r._asdict(), "accuracy": [round(a, 2) for a in r.accuracy]} for r in rows]
            write_json(results / FILE, {"rows": content})
            say(f"{algorithm}, {'with' if steps else 'without'} learned steps, seed {seed}")


def read_within(results: Path) -> list[WithinRow]:
    """Return what has been kept and was made as it is defined today."""
    path = results / FILE
    if not path.is_file():
        return []
    kept = read_json(path)["rows"]
    rows = [WithinRow(**{**row, "accuracy": tuple(row["accuracy"])}) for row in kept]
    return [row for row in rows if row.digest == within_digest(row.algorithm, row.seed)]
