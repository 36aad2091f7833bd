"""How long a run will take: a round or two of the first session are trained, and forgotten."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ebbflow.core.files import write_atomically
from ebbflow.core.local import Engine
from ebbflow.core.types import Session
from ebbflow.data.schedule import drawn_count
from ebbflow.simulation.ceilings import existing_folder
from ebbflow.simulation.lockstep import Lockstep
from ebbflow.simulation.methods import Method
from ebbflow.simulation.rounds import set_up_state
from ebbflow.simulation.testing import session_test
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World, draw_round
from ebbflow.starts import STARTS

WARM_UP = 2
"""Rounds that are trained before any is timed: code is loaded, and sizes of blocks are tried."""
TIMED = 1.0
"""Seconds after which no further round is timed."""


def measured_seconds(
    world: World, methods: Sequence[Method], engine: Engine, folder: Path
) -> float:
    """Return how long all seeds take, from a few rounds of the first session.

    Methods share their rounds until they differ, in session P+2; then each takes its own time, and
    so do the rounds of its probe. Every session ends with some files, whose time is measured on
    the disk of ``folder``. What a learned start asks is left out.
    """
    session, share = world.sessions[0], world.config.participation.share
    alone = list({method.algorithm.name: method for method in methods}.values())
    one = _seconds_a_round(world, session, alone, engine) / len(alone)
    first = drawn_count(len(session.devices), share)
    pilots = world.rules.pilot_sessions
    probing = sum(STARTS[method.name].probes for method in methods)
    rounds = 0.0
    probe = world.config.probe
    for each in world.sessions:
        present = len(each.devices)
        tracks = len(alone) if each.index <= pilots + 1 else len(methods)
        rounds += each.rounds * tracks * drawn_count(present, share) / first
        if each.index > pilots:
            rounds += probing * probe.rounds * drawn_count(present, probe.share) / first
    # An entry and a manifest for every method, a checkpoint of two files, and two files of lines.
    files = len(world.sessions) * (2 * len(methods) + 4)
    return len(world.config.seeds) * (rounds * one + files * _seconds_a_file(folder))


def _seconds_a_round(
    world: World, session: Session, methods: Sequence[Method], engine: Engine
) -> float:
    tracks = new_tracks(world, methods)
    for track in tracks:
        set_up_state(world, track, session, engine)
    lockstep = Lockstep(world, tracks, engine)
    test = session_test(world, session)
    took: list[float] = []
    while len(took) <= WARM_UP or (sum(took[WARM_UP:]) < TIMED and len(took) < 20):
        began = time.perf_counter()
        t = min(session.rounds, len(took) + 1)
        lockstep.train(draw_round(world, session, t), session.rounds)
        lockstep.evaluate(test)()
        took.append(time.perf_counter() - began)
    return float(np.median(took[WARM_UP:]))


def _seconds_a_file(folder: Path) -> float:
    """Return how long it takes to write a small file so that it is on the disk."""
    with tempfile.TemporaryDirectory(dir=existing_folder(folder)) as place:
        began = time.perf_counter()
        for number in range(4):
            write_atomically(Path(place) / str(number), [b"0" * 4096])
        return (time.perf_counter() - began) / 4
