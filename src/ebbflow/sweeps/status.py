"""How far a sweep is: read from its folder at any moment, without disturbing anybody."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.runs.state import run_state
from ebbflow.sweeps.claims import Attempt, Claims, readable_attempts, seconds_since
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.plan import SweepCell, SweepPlan

CellState = Literal["done", "running", "failed", "waiting"]
STATES: tuple[CellState, ...] = ("done", "running", "failed", "waiting")


class CellStatus(NamedTuple):
    """How far a cell is.

    Attributes:
        name: What it is called.
        digest: The digest of what its result depends on.
        state: A cell that waits may have been begun.
        where: The machine and the process that compute it, or did last.
        done: Rounds of all seeds that were recorded, if that is known.
        rounds: Rounds of all seeds, if that is known.
        seconds: What it has taken so far, over all attempts.
        memory: Bytes that its process took at most, once it has ended.
        starts: How often a process has begun with it or gone on.
        why: The reason if it has failed, or was left for other machines.
        estimate: What was measured before.
    """

    name: str
    digest: str
    state: CellState
    where: str = ""
    done: int | None = None
    rounds: int | None = None
    seconds: float = 0.0
    memory: int | None = None
    starts: int = 0
    why: str = ""
    estimate: CellEstimate | None = None

    @property
    def share(self) -> float:
        """The part of its rounds that is done, as far as that is known."""
        if self.state == "done":
            return 1.0
        return min(1.0, (self.done or 0) / self.rounds) if self.rounds else 0.0


class SweepStatus(NamedTuple):
    """How far a sweep is."""

    folder: Path
    name: str
    cells: list[CellStatus]

    @property
    def counts(self) -> dict[CellState, int]:
        """How many cells are in each state."""
        found = Counter(cell.state for cell in self.cells)
        return {state: found[state] for state in STATES}

    @property
    def over(self) -> bool:
        """Whether every cell is done or has failed."""
        return all(cell.state in ("done", "failed") for cell in self.cells)

    def seconds_left(self, workers: int | None = None) -> float | None:
        """Return about how long it will take with so many workers; None if nothing tells.

        By default as many as are at work. What cells were expected to take is corrected by what
        those that are done have taken.
        """
        at_work = workers or self.counts["running"]
        left = [cell for cell in self.cells if cell.state in ("running", "waiting")]
        if not left:
            return 0.0
        each = [_expected(cell) for cell in self.cells]
        known = [seconds for seconds in each if seconds is not None]
        if not known or not at_work:
            return None
        usual, factor = statistics.median(known), self._factor()
        remaining = [
            factor * (1 - cell.share) * (usual if seconds is None else seconds)
            for cell, seconds in zip(self.cells, each, strict=True)
            if cell in left
        ]
        return max(*remaining, sum(remaining) / at_work)

    def _factor(self) -> float:
        """Return how much longer cells have taken than was expected."""
        ratios = [
            cell.seconds / expected
            for cell in self.cells
            if cell.state == "done" and cell.starts == 1
            for expected in [_expected(cell)]
            if expected
        ]
        return statistics.median(ratios) if ratios else 1.0

    def record(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "folder": self.folder,
            "name": self.name,
            "counts": self.counts,
            "seconds_left": self.seconds_left(),
            "cells": [
                {
                    **cell._asdict(),
                    "estimate": None if cell.estimate is None else cell.estimate._asdict(),
                }
                for cell in self.cells
            ],
        }


def _expected(cell: CellStatus) -> float | None:
    return None if cell.estimate is None else cell.estimate.seconds


class StatusReader:
    """Reads a sweep's status again and again; what is done is read once."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._claims, self._failures = Claims(folder.path), Failures(folder.path)
        self._left = Failures(folder.path, LEFT)
        self._done: dict[str, CellStatus] = {}
        self._plan: tuple[float, SweepPlan, Mapping[str, CellEstimate]] | None = None

    def read(self) -> SweepStatus:
        """Return how far the sweep is now."""
        plan, estimates = self._planned()
        cells = []
        for cell in plan.cells:
            if cell.name not in self._done:
                found = self._cell(cell, estimates.get(cell.name))
                if found.state != "done":
                    cells.append(found)
                    continue
                self._done[cell.name] = found
            cells.append(self._done[cell.name])
        return SweepStatus(self._folder.path, plan.name, cells)

    def _planned(self) -> tuple[SweepPlan, Mapping[str, CellEstimate]]:
        path = self._folder.plan_file
        written = path.stat().st_mtime if path.exists() else 0.0
        if self._plan is None or self._plan[0] != written:
            self._plan = written, self._folder.plan(), self._folder.estimates()
        return self._plan[1:]

    def _cell(self, cell: SweepCell, estimate: CellEstimate | None) -> CellStatus:
        run = self._folder.run_folder(cell.name)
        attempts = readable_attempts(self._claims, cell.name)
        rounds, done = cell.rounds, None
        state: CellState = "waiting"
        why = ""
        # In this order: a cell that ends in between is then taken for one that still runs.
        held = self._claims.is_held(cell.name)
        if held:
            state = "running"
        elif failure := self._failures.read(cell.name):
            state, why = "failed", failure["sentence"]
        elif self._folder.is_done(cell):
            state, done = "done", rounds
        elif left := self._left.read(cell.name):
            why = f"{left['host']}: {left['sentence']}"
        if state != "done":
            done, rounds = _progress(run, rounds)
        return CellStatus(
            cell.name,
            cell.digest,
            state,
            _where(attempts),
            done,
            rounds,
            _seconds(attempts, held),
            max((attempt.get("memory", 0) for attempt in attempts), default=0) or None,
            len(attempts),
            why,
            estimate,
        )


def _progress(run: Path, rounds: int | None) -> tuple[int | None, int | None]:
    try:
        found = run_state(run)
    except EbbflowError:  # not begun
        return 0, rounds
    return found.done, found.total or rounds


def _where(attempts: Sequence[Attempt]) -> str:
    return f"{attempts[-1]['host']}:{attempts[-1]['pid']}" if attempts else ""


def _seconds(attempts: Sequence[Attempt], held: bool) -> float:
    total = sum(attempt.get("seconds", 0.0) for attempt in attempts)
    if held and attempts and attempts[-1]["state"] == "running":
        total += seconds_since(attempts[-1]["since"])
    return round(total, 2)
