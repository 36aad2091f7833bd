"""What a run came to in a few lines: the verdict, and the scores that it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ebbflow.analysis.metrics import Interval
from ebbflow.analysis.run_metrics import RunMetrics, metrics_of
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.spending import spending
from ebbflow.analysis.views.verdict import StartVerdict, nothing_yet, verdicts
from ebbflow.core.errors import EbbflowError
from ebbflow.outcomes.data_frames import data_frame
from ebbflow.outcomes.sheet_html import as_html
from ebbflow.outcomes.sheet_text import as_text
from ebbflow.report.export.columns import Frame
from ebbflow.report.export.frames import named_apart, table
from ebbflow.report.export.result_tables import WindowScore, window_scores
from ebbflow.report.export.sheets import Sheet
from ebbflow.report.export.summary_sheets import summary_sheets
from ebbflow.runs.records import EVENTS, RESTORE

if TYPE_CHECKING:
    from pandas import DataFrame

NO_ROUND = "No round is finished yet."


class ShownTables:
    """Sentences and tables that show themselves in an interpreter and in a notebook."""

    def __init__(
        self, sentences: Sequence[str], sheets: Sequence[Sheet], frame: Callable[[], Frame]
    ) -> None:
        self._sentences, self._sheets, self._frame = tuple(sentences), tuple(sheets), frame

    def __repr__(self) -> str:
        return as_text(self._sentences, self._sheets)

    def _repr_html_(self) -> str:
        return as_html("", self._sentences, self._sheets)

    def to_pandas(self) -> DataFrame:
        """Return the numbers of the table, with all digits, as a data frame."""
        return data_frame(self._frame())


class RunSummary(ShownTables):
    """Which start won, and every method's window scores.

    Attributes:
        verdict: In words.
        verdicts: For each algorithm; see `winner`, `score` and `lead` for the first of them.
        scores: The mean of every method over a window and seeds, at each transition and over all.
    """

    def __init__(self, view: RunView, found: Sequence[StartVerdict]) -> None:
        self.verdicts = list(found)
        self.scores: list[WindowScore] = window_scores(view)
        told = sentences(view, found)
        self.verdict = "\n".join(told)
        super().__init__(told, score_sheets([view]), lambda: table([view], "summary"))

    @property
    def winner(self) -> str:
        """The best method; empty before the first transition is over."""
        return self.verdicts[0].winner if self.verdicts else ""

    @property
    def score(self) -> float:
        """The winner's window score, as a mean over transitions and seeds; or nan."""
        return self.verdicts[0].score if self.verdicts else math.nan

    @property
    def lead(self) -> Interval | None:
        """By how much the winner is better than the next best, with an interval over seeds."""
        return self.verdicts[0].lead if self.verdicts else None

    @property
    def p(self) -> float:
        """The p-value of that lead; nan if there is none."""
        test = self.verdicts[0].test if self.verdicts else None
        return math.nan if test is None else test.p


class RunsSummary(ShownTables):
    """Which start won in each of several runs, and every method's score over all transitions.

    Attributes:
        verdicts: For each run by its name, and each algorithm.
    """

    def __init__(self, views: Sequence[RunView], found: Sequence[Sequence[StartVerdict]]) -> None:
        named = named_apart(views)
        self.verdicts = {v.name: list(own) for v, own in zip(named, found, strict=True)}
        told = [
            f"{view.name}: {sentence}"
            for view, own in zip(named, found, strict=True)
            for sentence in sentences(view, own)
        ]
        super().__init__(told, score_sheets(views), lambda: table(views, "summary"))

    @property
    def winners(self) -> dict[str, str]:
        """The best method of each run, under its first algorithm."""
        return {name: own[0].winner if own else "" for name, own in self.verdicts.items()}


def judged(view: RunView) -> list[StartVerdict]:
    """Return a verdict for each algorithm; none before the first transition is over."""
    return verdicts(_metrics(view), spending(view).usages) if view.rounds else []


def sentences(view: RunView, found: Sequence[StartVerdict]) -> list[str]:
    """Return verdicts in words, or why there are none yet."""
    if not view.rounds:
        return [NO_ROUND]
    if not found:
        return [nothing_yet(_metrics(view))]
    if len(found) == 1:
        return [found[0].sentence]
    return [f"{verdict.algorithm}: {verdict.sentence}" for verdict in found]


def _metrics(view: RunView) -> RunMetrics:
    try:
        return metrics_of(view.config, view.rounds, view.events, ())
    except (KeyError, TypeError):
        where = view.name if view.folder is None else view.folder / EVENTS
        raise EbbflowError(f"{where} is not of this version: {RESTORE}") from None


def score_sheets(views: Sequence[RunView]) -> list[Sheet]:
    """Return the tables of window scores; none for runs without a transition yet."""
    begun = [view for view in views if view.rounds]
    frame = table(begun, "summary") if begun else None
    if frame is None or not frame.rows:
        return []
    return list(summary_sheets(named_apart(begun), frame))
