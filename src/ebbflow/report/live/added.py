"""What runs have recorded since a content was computed, as rows that a page adds to its curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ebbflow.report.live.tail import NewRecords
from ebbflow.report.live.watched_run import WatchedRun
from ebbflow.report.page.plain import number


class AddedRow(NamedTuple):
    """A round or a start of a run."""

    run: WatchedRun
    values: tuple[Any, ...]


class Added:
    """Rounds and starts that are newer than a content.

    ``void`` says that a run was cut since: the content may hold rounds that are not there any more,
    and what follows does not fit it. Nothing is added then; the next content has all of it.
    """

    def __init__(self, *, void: bool = False) -> None:
        self.void = void
        self.rounds: list[AddedRow] = []
        self.starts: list[AddedRow] = []

    def add(self, run: WatchedRun, new: NewRecords) -> None:
        """Add what a run has recorded."""
        self.void |= new.anew
        if self.void:
            return
        for r in new.rounds:
            place = r.algorithm, r.method, r.seed, r.session, r.round
            values = *place, number(r.accuracy), number(r.loss, 6)
            self.rounds.append(AddedRow(run, values))
        for e in new.events:
            if e["event"] == "start":
                begun = e["algorithm"], e["method"], e["seed"], e["session"]
                self.starts.append(AddedRow(run, (*begun, number(e["accuracy"]), e.get("rounds"))))

    @staticmethod
    def rows(added: Sequence[AddedRow], places: Mapping[WatchedRun, int]) -> list[list[Any]]:
        """Return rows with the place of their run in the content; others are left out."""
        return [[places[row.run], *row.values] for row in added if row.run in places]
