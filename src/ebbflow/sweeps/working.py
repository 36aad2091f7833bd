"""A worker: computes cells one after the other, as long as there are any that it can claim.

Any number of workers on any number of machines may work on the same folder. They know of each other
by the locks alone, so a worker may come, go or be killed at any time.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.signals import handled_by
from ebbflow.sweeps.children import GRACE, CellProcess
from ebbflow.sweeps.claims import Claims, checkpoint_number
from ebbflow.sweeps.clusters import Clusters
from ebbflow.sweeps.computing import MOST_DEATHS, CellEnding
from ebbflow.sweeps.failures import LEFT, Failures
from ebbflow.sweeps.jobs import Jobs
from ebbflow.sweeps.room import Room

INTERVAL = 0.5
"""Seconds between two looks at what others are doing."""


class Worker:
    """Computes cells until none is left to claim.

    Args:
        jobs: The cells.
        say: Told in sentences what happens.
        lifeline: A handle that is at its end when the process is gone that this one works for.
        grace: Seconds that a round has to finish once this worker is asked to stop.
    """

    def __init__(
        self,
        jobs: Jobs,
        say: Callable[[str], None],
        lifeline: int | None = None,
        grace: int = GRACE,
    ) -> None:
        self.jobs = jobs
        self.left: dict[str, str] = {}
        """Cells that this machine cannot compute, and why."""
        self.stopped_by: int | None = None
        """The signal that this worker was asked to stop by."""
        self._say = say
        self._lifeline, self._grace = lifeline, grace
        self._claims, self._failures = Claims(jobs.folder), Failures(jobs.folder)
        self._room, self._clusters = Room(jobs.folder), Clusters(jobs.folder)
        self._done: set[str] = set()
        self._later: dict[str, None] = {}
        self._unnoted = 0
        self._child: CellProcess | None = None
        self._waits_for: str | None = None

    def work(self) -> None:
        """Compute cells until all are done, failed, or out of reach for this machine."""
        with handled_by(self._handle):
            if self._open():
                self._room.check()  # or every cell would fail for want of a lock
            for module in self.jobs.modules:
                import_module(module)
            while self.stopped_by is None:
                open_cells = self._open()
                if not open_cells:
                    return
                if not self._worked_on_one(open_cells):
                    if all(name in self.left for name in open_cells) and not any(
                        map(self._claims.is_held, open_cells)
                    ):
                        return
                    self._wait()

    def _open(self) -> list[str]:
        """Return the cells that are neither done nor failed; those that died come last.

        One whose process has yet to let go of it is not done: it would be told as running.
        """
        self.jobs.refresh()
        found = []
        for name in self.jobs.names():
            if name in self._done or name in self._failures:
                continue
            if self.jobs.is_done(name) and not self._claims.is_held(name):
                self._done.add(name)
            else:
                found.append(name)
        return sorted(found, key=lambda name: name in self._later)

    def _worked_on_one(self, open_cells: list[str]) -> bool:
        """Compute the first cell that can be claimed; return whether there was one."""
        waits_for: str | None = None
        for name in open_cells:
            if name in self.left or self._claims.is_held(name):
                continue
            need = self.jobs.need(name)
            ending = self._obstacle(name, need) or self._compute(name)
            if ending is CellEnding.NO_CLUSTER:
                waits_for = "a Ray cluster that another cell of the sweep has taken"
            elif ending is CellEnding.NO_ROOM:
                lacking = self._room.lacking(need)
                if lacking is None:
                    waits_for = "memory that other cells have been promised"
                else:
                    self._leave(name, need, lacking)
            elif ending is not CellEnding.TAKEN:
                self._room.was_enough()
                return True
        if waits_for is not None and waits_for != self._waits_for:
            self._say(f"waits for {waits_for}")
        self._waits_for = waits_for
        return False

    def _obstacle(self, name: str, need: int | None) -> CellEnding | None:
        """Return why a process for a cell need not be started, as far as can be seen from here."""
        if self._clusters.is_taken(self.jobs.cluster(name)):
            return CellEnding.NO_CLUSTER
        return None if self._room.fits(need) else CellEnding.NO_ROOM

    def _leave(self, name: str, need: int | None, lacking: str) -> None:
        from ebbflow.simulation.ceilings import in_words  # noqa: PLC0415 - imports torch

        self.left[name] = (
            f"{name} needs about {in_words(need or 0)} of memory, and {lacking}: it is left for "
            "other machines"
        )
        Failures(self.jobs.folder, LEFT).write(name, EbbflowError(self.left[name]))
        self._say(self.left[name])

    def _compute(self, name: str) -> CellEnding | str:
        before = checkpoint_number(self.jobs.run_folder(name))
        self._child = child = CellProcess(self.jobs, name, self._grace)
        began, told = time.monotonic(), False
        asked: float | None = None
        while child.running:
            self._look_at_lifeline(child)
            if self.stopped_by is not None and asked is None:
                self._say("stopping after this round; once more to stop at once")
                child.ask_to_stop()
                asked = time.monotonic()
            if asked is not None and time.monotonic() - asked > self._grace + 2:
                child.kill()
            if not told and time.monotonic() - began > INTERVAL:
                told = True
                self._say(f"{name}: {'goes on' if before else 'begun'}")
        self._child = None
        pid, ending = child.pid, child.ending()
        self._tell(name, pid, ending, time.monotonic() - began)
        return ending

    def _tell(self, name: str, pid: int, ending: CellEnding | str, seconds: float) -> None:
        if ending in (CellEnding.DONE, CellEnding.FAILED, CellEnding.STOPPED):
            self._unnoted = 0
        if ending is CellEnding.DONE:
            self._say(f"{name}: done, {seconds:.0f} s")
        elif ending is CellEnding.FAILED:
            failure = self._failures.read(name)
            self._say(f"{name}: failed: {failure['sentence'] if failure else 'unknown'}")
        elif ending is CellEnding.STOPPED:
            self._say(f"{name}: stopped, and can go on")
        elif isinstance(ending, str):
            self._tell_death(name, pid, ending)

    def _tell_death(self, name: str, pid: int, how: str) -> None:
        self._later[name] = None
        self._unnoted = 0 if self._claims.note_death(name, pid, how) else self._unnoted + 1
        if self._unnoted == MOST_DEATHS:  # the notes would not tell when to give the cells up
            raise EbbflowError(
                f"{self._unnoted} processes in a row ended before they had noted anything in "
                f"{self.jobs.folder} (the last one: {name}, {how}): make sure that it can be "
                "written to and that its disk and your quota have room, and start the worker again"
            )
        self._say(f"{name}: its process died ({how}); it is tried again")

    # --- waiting and stopping --------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait a moment for what others do."""
        self._look_at_lifeline(None)
        time.sleep(INTERVAL)

    def _look_at_lifeline(self, child: CellProcess | None) -> None:
        """Wait a moment for a child; stop if the process is gone that this one works for."""
        handles = [] if self._lifeline is None else [self._lifeline]
        ready: list[Any] = []
        if child is not None:
            ready = child.wait(handles, INTERVAL)
        elif handles:
            ready = select.select(handles, [], [], 0)[0]
        gone = self._lifeline in ready and os.read(handles[0], 1024) == b""
        if gone and self.stopped_by is None:
            self.stopped_by = signal.SIGTERM

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stopped_by is not None and self._child is not None:
            self._child.kill()  # asked twice
        self.stopped_by = self.stopped_by or number
