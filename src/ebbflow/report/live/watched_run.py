"""One run that is watched: how far it is, and what it has recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ebbflow.analysis.views.run_view import Event, RunView, view_without_lines
from ebbflow.report.live.pace import Pace
from ebbflow.report.live.tail import NewRecords, RunTail
from ebbflow.runs import records
from ebbflow.runs.records import Round
from ebbflow.runs.state import RunState, is_written_to, run_state

if TYPE_CHECKING:
    from ebbflow.analysis.views.spending import Spending

MATURE = 300.0
"""Seconds that a run must have gone on until its costs are computed, which with all that it imports
takes more than a second."""
LATER = (
    "it is computed when a session ends after five minutes, or when the run is over; "
    "`ebbflow cost` tells it before"
)
NOTHING = NewRecords(False, [], [])


class RunNews(NamedTuple):
    """What a look at a run has found.

    Attributes:
        changed: Whether anything is new.
        weighty: Whether more of the page changes than its curves: a session or the run is over,
            the run has stopped, the settings are others, or what was recorded before no longer
            holds.
        new: What the run has recorded since the last look.
    """

    changed: bool
    weighty: bool
    new: NewRecords


class RunLines(NamedTuple):
    """The rounds and events of a run, as far as they were read.

    ``cuts`` says how often the run had been cut by then, and ``files`` what its files were.
    """

    rounds: Sequence[Round]
    events: Sequence[Event]
    cuts: int
    files: object


class WatchedRun:
    """A run folder; nothing is written to it, and nothing there is kept open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = RunState("stopped")
        self.trouble = ""
        self._tail = RunTail(folder)
        self._seen: _Seen | None = None
        self._costing = Pace(MATURE, first=MATURE)
        self._cuts = 0
        self._spent: _Spent | None = None

    @property
    def going(self) -> bool:
        """Whether a process writes to the folder, which may also complete a finished run."""
        return self._seen is not None and self._seen.written_to

    def look(self) -> RunNews:
        """Read what is new."""
        before, self._seen = self._seen, _Seen.of(self.folder)
        if before == self._seen and not self._tail.trouble:
            return RunNews(False, False, NOTHING)
        # In this order: a run that is finished has recorded everything.
        was, self.state = self.state, run_state(self.folder)
        new = self._tail.read()
        self._cuts += new.anew
        stopped = self.state.state == "stopped" and was.state == "running"
        finished = self.state.state == "finished" and was.state != "finished"
        if finished and before is not None:
            # A resume may have changed earlier lines unnoticed. In the end, all are right.
            self._tail.start_over()
            self._tail.read()
        self.trouble = self._tail.trouble
        settings = before is not None and before.config != self._seen.config
        over = any(event["event"] == "finished" for event in new.events)
        return RunNews(True, new.anew or stopped or finished or settings or over, new)

    def lines(self) -> RunLines:
        """Return what was recorded up to the last look."""
        files = self._seen and self._seen[:2]
        rounds, events = tuple(self._tail.rounds), tuple(self._tail.events)
        return RunLines(rounds, events, self._cuts, files)

    def view(self, lines: RunLines) -> RunView:
        """Return the run with what was recorded up to some look."""
        return replace(view_without_lines(self.folder), rounds=lines.rounds, events=lines.events)

    def spent(self, view: RunView, lines: RunLines, *, going: bool) -> Spending:
        """Return what the run had spent by then; while it goes on, perhaps by some time before."""
        from ebbflow.analysis.views.spending import Spending  # noqa: PLC0415 - slow to import
        from ebbflow.report.page.content import spent_so_far  # noqa: PLC0415 - slow to import

        known = self._spent
        if known is not None and known.cuts != lines.cuts:
            known = None  # it may hold rounds that are not there any more
        if known is not None and known.files == lines.files:
            return known.spending
        if going and not (self._is_mature() and self._costing.ready()):
            return Spending((), LATER) if known is None else known.spending
        with self._costing.timed():
            self._spent = _Spent(lines.cuts, lines.files, spent_so_far(view))
        return self._spent.spending

    def _is_mature(self) -> bool:
        try:
            begun = (self.folder / records.CONFIG).stat().st_mtime
        except OSError:
            return False
        return time.time() >= begun + MATURE


class _Spent(NamedTuple):
    """What a run had spent, and by which of its lines."""

    cuts: int
    files: object
    spending: Spending


class _Seen(NamedTuple):
    """What the file system tells of a run at once; if it is as before, nothing has happened."""

    config: tuple[int, ...]
    others: tuple[tuple[int, ...], ...]
    written_to: bool

    @classmethod
    def of(cls, folder: Path) -> _Seen:
        files = (records.METRICS, records.EVENTS, records.SUMMARY, records.ENVIRONMENT)
        return cls(
            _file_facts(folder / records.CONFIG),
            tuple(_file_facts(folder / name) for name in files),
            is_written_to(folder),
        )


def _file_facts(path: Path) -> tuple[int, ...]:
    try:
        facts = path.lstat()
    except OSError:
        return ()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
