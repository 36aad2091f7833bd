"""Computes one cell here and now: claims it, makes sure of the memory, and notes how it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from enum import IntEnum

from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.sweeps import locks
from ebbflow.sweeps.claims import Attempt, Claim, Claims, State
from ebbflow.sweeps.clusters import Clusters
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.jobs import Jobs, Stop
from ebbflow.sweeps.room import Room
from ebbflow.sweeps.usage import usage

MOST_DEATHS = 3
"""How often a cell's process may die in a row before it has saved anything."""


class CellEnding(IntEnum):
    """How an attempt at a cell ended; the exit code of its process."""

    DONE = 0
    FAILED = 64
    STOPPED = 65
    TAKEN = 66
    NO_ROOM = 67
    NO_CLUSTER = 68


def compute_cell(
    jobs: Jobs, name: str, stop: Stop, patience: float = locks.PATIENCE, cores: int = 0
) -> CellEnding:
    """Compute a cell in this process, unless another one has it.

    Args:
        jobs: The cells.
        name: The cell's name.
        stop: Asked after every round; if true, the cell is saved and left.
        patience: Seconds to wait for a process that may be about to give the cell up.
        cores: Processor cores to bind this process to; by default it uses all that it may.
    """
    claim = Claims(jobs.folder).take(name, jobs.run_folder(name), patience)
    if claim is None:
        return CellEnding.TAKEN
    with claim:
        if jobs.is_done(name):
            return CellEnding.DONE
        failures = Failures(jobs.folder)
        if name in failures:
            return CellEnding.FAILED
        if len(claim.deaths) >= MOST_DEATHS:
            failures.write(name, EbbflowError(death_sentence(claim.deaths)))
            claim.give_up()
            return CellEnding.FAILED
        with Clusters(jobs.folder).taken(jobs.cluster(name)) as free:
            if not free:
                return CellEnding.NO_CLUSTER
            return _given_room(jobs, name, stop, claim, cores)


def _given_room(jobs: Jobs, name: str, stop: Stop, claim: Claim, cores: int) -> CellEnding:
    """Compute a cell, unless there is too little memory for it now."""
    room = Room(jobs.folder)
    if not room.reserve(name, jobs.need(name), cores):
        return CellEnding.NO_ROOM
    try:
        return _attempted(jobs, name, stop, claim)
    finally:
        room.release()


def _attempted(jobs: Jobs, name: str, stop: Stop, claim: Claim) -> CellEnding:
    claim.begin()
    Failures(jobs.folder, LEFT).forget(name)
    began = time.monotonic()
    state: State = "stopped"
    try:
        jobs.compute(name, stop)
        if not jobs.is_done(name):  # or it would be computed again and again
            raise RuntimeError(f"{name} was computed, and is not done")
        state = "done"
    except (RunStoppedError, KeyboardInterrupt):
        pass
    except Exception as error:  # whatever it is, the other cells go on
        Failures(jobs.folder).write(name, error)
        state = "failed"
    finally:
        seconds = round(time.monotonic() - began, 2)
        claim.conclude(state, {"seconds": seconds, **usage()})
    return {"done": CellEnding.DONE, "failed": CellEnding.FAILED}.get(state, CellEnding.STOPPED)


def death_sentence(deaths: Sequence[Attempt]) -> str:
    """Return why a cell is given up whose processes die."""
    how = next((attempt["how"] for attempt in deaths if "how" in attempt), "")
    cause = f", the last time by {how}" if how else ""
    memory = f"signal {int(signal.SIGKILL)}" in how or not how
    guess = "perhaps there was too little memory: " if memory else ""
    return (
        f"its process died {len(deaths)} times in a row before it had saved anything{cause}: "
        f"{guess}make the cell smaller, use fewer workers or another machine, and try again with "
        "--retry"
    )
