"""One run that is watched: how far it is, and what it has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ebbflow.analysis.views.run_view import Event, RunView, view_without_lines
from ebbflow.report.live.tail import NewRecords, RunTail
from ebbflow.runs import records
from ebbflow.runs.records import Round
from ebbflow.runs.state import RunState, is_written_to, run_state

NOTHING = NewRecords(False, [], [])


class RunNews(NamedTuple):
    """What a look at a run has found.

    Attributes:
        changed: Whether anything is new.
        weighty: Whether more of the page changes than its curves: a session or the run is over,
            the settings are others, or what was recorded before no longer holds.
        new: What the run has recorded since the last look.
    """

    changed: bool
    weighty: bool
    new: NewRecords


class RunLines(NamedTuple):
    """The rounds and events of a run, as far as they were read."""

    rounds: Sequence[Round]
    events: Sequence[Event]


class WatchedRun:
    """A run folder; nothing is written to it, and nothing there is kept open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = RunState("stopped")
        self.trouble = ""
        self._tail = RunTail(folder)
        self._seen: _Seen | None = None

    def look(self) -> RunNews:
        """Read what is new."""
        before, self._seen = self._seen, _Seen.of(self.folder)
        if before == self._seen and not self._tail.trouble:
            return RunNews(False, False, NOTHING)
        # In this order: a run that is finished has recorded everything.
        was, self.state = self.state, run_state(self.folder)
        new = self._tail.read()
        finished = self.state.state == "finished" and was.state != "finished"
        if finished and before is not None:
            # A resume may have changed earlier lines unnoticed. In the end, all are right.
            self._tail.start_over()
            self._tail.read()
        self.trouble = self._tail.trouble
        settings = before is not None and before.config != self._seen.config
        over = any(event["event"] == "finished" for event in new.events)
        return RunNews(True, new.anew or finished or settings or over, new)

    def lines(self) -> RunLines:
        """Return what was recorded up to the last look."""
        return RunLines(tuple(self._tail.rounds), tuple(self._tail.events))

    def view(self, lines: RunLines) -> RunView:
        """Return the run with what was recorded up to some look."""
        return replace(view_without_lines(self.folder), rounds=lines.rounds, events=lines.events)


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
