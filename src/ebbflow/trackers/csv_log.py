"""Tables for any program: ``csv/rounds.csv`` and ``csv/sessions.csv`` in the run folder.

Both are written anew when a run goes on, from its records, so that no line is there twice.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, TextIO

from ebbflow.trackers.tracking import COSTS, Scalars, TrackedOutcome, TrackedRun, Tracker

ABOUT = ("algorithm", "method", "seed", "session", "round", "step")


class CsvLog(Tracker):
    """Writes a line for every round, and one for every session."""

    name = "csv"

    def open(self) -> None:
        """Begin both tables."""
        folder = self.own_folder()
        self._started: dict[TrackedRun, Scalars] = {}
        self._rounds = _Table(folder / "rounds.csv")
        judge = self.judge
        self._sessions = _Table(
            folder / "sessions.csv",
            *(f"start/{judge}", "start/loss", f"final/{judge}"),
            *(f"final/devices_{name}" for name in ("mean", "worst", "spread")),
            *(f"cost/{name}" for name in (*COSTS, "stored_bytes")),
        )

    def log(self, scalars: Scalars) -> None:
        """Write a round; a session is written when it is over."""
        if scalars.moment == "round":
            self._rounds.write(scalars)
        elif scalars.moment == "start":
            self._started[scalars.run] = scalars
        else:
            started = self._started.pop(scalars.run)
            self._sessions.write(scalars._replace(values=started.values | scalars.values))

    def end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        """Write the session in which a method ended: there is nothing but its start."""
        if outcome == "ended" and run in self._started:
            self._sessions.write(self._started.pop(run))

    def close(self) -> None:
        """Close both tables."""
        self._rounds.close()
        self._sessions.close()


class _Table:
    """A CSV file; without columns, the first line decides on them."""

    def __init__(self, path: Path, *columns: str) -> None:
        path.unlink(missing_ok=True)  # another name may lead to the same content
        self._file: TextIO = path.open("x", encoding="utf-8", newline="")
        self._writer: csv.DictWriter[str] | None = None
        if columns:
            self._begin(*columns)

    def _begin(self, *columns: str) -> csv.DictWriter[str]:
        self._writer = csv.DictWriter(self._file, (*ABOUT, *columns), lineterminator="\n")
        self._writer.writeheader()
        return self._writer

    def write(self, scalars: Scalars) -> None:
        writer = self._writer or self._begin(*scalars.values)
        about = (*scalars.run, scalars.session, scalars.round, scalars.step)
        line: dict[str, Any] = dict(zip(ABOUT, about, strict=True))
        writer.writerow(line | scalars.values)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
