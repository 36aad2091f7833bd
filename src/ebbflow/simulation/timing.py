"""How long a run will take: some rounds of the first session are trained, and forgotten."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ebbflow.core.files import write_atomically, write_digested
from ebbflow.core.local import Engine
from ebbflow.core.rng import torch_generator
from ebbflow.core.types import ModelState, PastSession, Session
from ebbflow.data.schedule import drawn_count
from ebbflow.simulation.ceilings import existing_folder
from ebbflow.simulation.lockstep import Delayed, Lockstep, Scores
from ebbflow.simulation.methods import Method
from ebbflow.simulation.rounds import set_up_state
from ebbflow.simulation.simulate import begin_session
from ebbflow.simulation.testing import session_test
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import World, draw_round

WARM_UP = 2
"""Rounds that take longer: code is loaded, and sizes of blocks are tried."""
TIMED = 1.0
"""Seconds after which no further round is timed."""
SLOW = 0.5
"""Seconds of a round from which on methods are not timed together: each is taken to add as much."""
PAST_BYTES = 64 * 2**20
"""What past sessions may take that starts are timed with."""
FILES = 8
"""Small files that are written to see how long that takes."""
MUCH = 32 * 2**20
"""Bytes from which on their number tells how long files take to write; so many are tried."""


class Took(NamedTuple):
    """How long one of many takes, and how much longer the first ones together.

    The first ones load code and try sizes of blocks, once in a run.
    """

    each: float
    first: float = 0.0


def measured_seconds(
    world: World, methods: Sequence[Method], engine: Engine, folder: Path, disk: Mapping[str, int]
) -> float:
    """Return how long all seeds take, from a few rounds of the first session.

    Methods share their rounds until they differ, in session P+2; then all are trained. How they
    start a session (probes, surveys, what they read of the past) is timed halfway through the run.
    Every session ends with some files, whose time is measured on the disk of ``folder``; ``disk``
    has the sizes of the histories and of a checkpoint.
    """
    session, share = world.sessions[0], world.config.participation.share
    alone = list({method.algorithm.name: method for method in methods}.values())
    shared, first_rounds = _seconds_a_round(world, session, new_tracks(world, alone), engine)
    apart = shared * len(methods) / len(alone)
    pilots = world.rules.pilot_sessions
    if shared < SLOW and len(methods) > len(alone) and len(world.sessions) > pilots + 1:
        apart = _seconds_a_round(world, session, _different_tracks(world, methods), engine).each
    drawn = drawn_count(len(session.devices), share)
    starts = [_seconds_a_start(world, method, engine, shared < SLOW) for method in methods]
    seconds = max(0, len(world.sessions) - pilots) * sum(start.each for start in starts)
    for each in world.sessions:
        a_round = shared if each.index <= pilots + 1 else apart
        seconds += each.rounds * a_round * drawn_count(len(each.devices), share) / drawn
    # An entry and a manifest for every method, a checkpoint of two files, and two files of lines.
    seeds, files = len(world.config.seeds), len(world.sessions) * (2 * len(methods) + 4)
    saved = 1 + len(world.sessions)  # the first checkpoint comes after the first round
    written = disk["history"] / seeds + saved * disk["checkpoint"]
    writing = files * _seconds_a_file(folder) + written * _seconds_a_byte(folder, written)
    return first_rounds + sum(start.first for start in starts) + seeds * (seconds + writing)


def _different_tracks(world: World, methods: Sequence[Method]) -> list[Track]:
    """Return tracks that have nothing in common, as they are once their starts have differed."""
    tracks = new_tracks(world, methods)
    for number, track in enumerate(tracks):
        track.model = _moved(world, number)
    return tracks


def _moved(world: World, number: int) -> ModelState:
    """Return the initial model, moved a little in a direction of its own."""
    theta, buffers = world.initial
    step = torch.randn(theta.shape, generator=torch_generator(0, "timing", number))
    return ModelState(theta + 1e-3 * step.to(theta), buffers)


def _seconds_a_round(
    world: World, session: Session, tracks: Sequence[Track], engine: Engine
) -> Took:
    for track in tracks:
        set_up_state(world, track, session, engine)
    lockstep = Lockstep(world, tracks, engine)
    test = session_test(world, session)
    took: list[float] = []
    with Delayed() as scores:  # as in a run, the next round begins before they are there
        while len(took) <= WARM_UP or (sum(took[WARM_UP:]) < TIMED and len(took) < 20):
            began = time.perf_counter()
            t = min(session.rounds, len(took) + 1)
            lockstep.train(draw_round(world, session, t), session.rounds)
            scores.add(partial(_waited_for, lockstep.evaluate(test)))
            took.append(time.perf_counter() - began)
    each = float(np.median(took[WARM_UP:]))
    return Took(each, max(0.0, sum(took[:WARM_UP]) - WARM_UP * each))


def _waited_for(scores: Scores) -> None:
    scores()


def _seconds_a_start(world: World, method: Method, engine: Engine, twice: bool) -> Took:
    """Return how long it takes to start a session halfway through the run.

    The first time, code is loaded: then it is done ``twice``, if that does not take long.
    """
    first, session = world.rules.pilot_sessions + 1, world.sessions[-1]
    if session.index < first:
        return Took(0.0)
    took: list[float] = []
    try:
        past = [
            PastSession(number, model, model.theta, model)
            for number in range(first, first + _typical_past(world))
            for model in [_moved(world, number)]
        ]
        for _ in range(1 + twice):
            (track,) = new_tracks(world, [method])
            track.model, track.pilot, track.past = _moved(world, 0), world.initial, past
            began = time.perf_counter()
            begin_session(world, track, session, engine)
            took.append(time.perf_counter() - began)
    except Exception:  # the run itself says what is wrong, and where
        return Took(0.0)
    return Took(took[-1], max(0.0, took[0] - took[-1]))


def _typical_past(world: World) -> int:
    """Return how many past sessions a method has halfway, unless they are too large to hold."""
    history, after_pilot = world.config.history, len(world.sessions) - world.rules.pilot_sessions
    kept = after_pilot if history.keep == "all" else min(after_pilot, history.size)
    fitting = PAST_BYTES // (4 * (world.model.layout.total + world.model.buffer_layout.total))
    return min(max(2, kept // 2), max(2, fitting))


def _seconds_a_byte(folder: Path, written: float) -> float:
    """Return how long a byte of a large file takes to write, if many are to be written."""
    if written < MUCH:
        return 0.0
    content = np.random.default_rng(0).bytes(MUCH)
    with tempfile.TemporaryDirectory(dir=existing_folder(folder)) as place:
        began = time.perf_counter()
        write_digested(Path(place) / "large", [content])
        return (time.perf_counter() - began) / MUCH


def _seconds_a_file(folder: Path) -> float:
    """Return how long it takes to write a small file so that it is on the disk."""
    with tempfile.TemporaryDirectory(dir=existing_folder(folder)) as place:
        began = time.perf_counter()
        for number in range(FILES):
            write_atomically(Path(place) / str(number), [b"0" * 4096])
        return (time.perf_counter() - began) / FILES
