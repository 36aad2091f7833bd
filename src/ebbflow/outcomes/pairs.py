"""Two runs beside each other, seed by seed.

Every draw is a function of names, so runs with other settings and the same seed see the same
devices, mini-batches and initial weights as far as the settings allow. Their scores are paired
under the seeds that they have in common.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ebbflow.analysis.metrics import CONFIDENCE, interval, paired_test
from ebbflow.analysis.views.run_view import RunView, check_rounds
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import Judge
from ebbflow.core.names import listed
from ebbflow.outcomes.summaries import ShownTables
from ebbflow.report.export.columns import ALGORITHM, METHOD, Column, Frame, number, whole
from ebbflow.report.export.frames import differing_settings, named_apart
from ebbflow.report.export.sheets import HeadCell, Sheet, SheetCell, signed, slug
from ebbflow.runs.summary import (
    Curve,
    curves,
    transition,
    window_accuracy,
    without_broken_sessions,
)

MOST_SETTINGS = 6
"""Settings that a sentence names."""


class PairedScore(NamedTuple):
    """A method's mean window score in two runs, over the seeds and transitions of both.

    ``difference`` is positive where our run is better, whatever the measure; ``wins`` counts the
    seeds under which it is, and ``p`` is an exact paired permutation test. Runs without a seed in
    common are not paired: ``seeds`` is zero, the means are over all seeds of each, and there is
    neither an interval nor a test.
    """

    algorithm: str
    method: str
    window: int
    seeds: int
    transitions: int
    ours: float
    theirs: float
    difference: float
    low: float = math.nan
    high: float = math.nan
    wins: int = 0
    p: float = math.nan


DoneCurves = Mapping[tuple[str, str, int], Mapping[int, Curve]]
"""The accuracies of finished sessions: by algorithm, method and seed, then by transition."""


class SeedPairs(ShownTables):
    """How one run fares beside another.

    Attributes:
        names: What the runs are called.
        seeds: The seeds that both have.
        settings: The settings in which they differ, with both values.
        scores: For each algorithm, method and window that both have.
    """

    def __init__(self, ours: RunView, theirs: RunView) -> None:
        views = named_apart([ours, theirs])
        self.names = (views[0].name, views[1].name)
        for view in views:
            check_rounds(view)
        if ours.judge != theirs.judge:
            raise EbbflowError(
                f"{self.names[0]} is judged by {ours.judge.name} and {self.names[1]} by "
                f"{theirs.judge.name}: compare runs with the same measure"
            )
        self.settings: dict[str, tuple[object, object]] = {
            key: (values[0], values[1]) for key, values in differing_settings(views).items()
        }
        windows = [window for window in ours.config.window if window in theirs.config.window]
        first, second = _done(ours), _done(theirs)
        here, there = ({key[2] for key in own} for own in (first, second))
        self.seeds = [seed for seed in ours.seeds if seed in here & there]
        self.scores = [
            score
            for window in windows
            for score in _paired(ours.judge, first, second, window, self.seeds)
        ]
        if not self.scores:
            raise EbbflowError(
                f"{self.names[0]} and {self.names[1]} have nothing to compare: no method with a "
                "window and a finished transition is in both"
            )
        sentence = f"{self._alike()} {self._differing()}"
        super().__init__([sentence], [_sheet(self, ours)], lambda: _frame(self.scores))

    def _alike(self) -> str:
        if not self.seeds:
            return (
                f"{self.names[0]} and {self.names[1]} have no seed in common, so chance cannot "
                "be told from a difference: run them with the same seeds."
            )
        count, seeds = len(self.seeds), listed(list(map(str, self.seeds)))
        return f"Paired under {count} seed{'s' if count > 1 else ''} ({seeds})."

    def _differing(self) -> str:
        if not self.settings:
            return "The runs have the same settings."
        texts = [f"{key} ({a} and {b})" for key, (a, b) in self.settings.items()]
        return f"They differ in {listed(texts, MOST_SETTINGS)}."


def _paired(
    judge: Judge, ours: DoneCurves, theirs: DoneCurves, window: int, seeds: Sequence[int]
) -> list[PairedScore]:
    found = []
    for method in dict.fromkeys(key[:2] for key in ours):
        first, second = (
            {key[2]: own[key] for key in own if key[:2] == method} for own in (ours, theirs)
        )
        if seeds:
            both = [seed for seed in seeds if seed in first and seed in second]
            first, second = ({seed: own[seed] for seed in both} for own in (first, second))
        shared = _transitions([*first.values(), *second.values()])
        if not first or not second or not shared:
            continue
        mine, other = (
            [
                statistics.fmean(window_accuracy(by_transition[k], window) for k in shared)
                for by_transition in own.values()
            ]
            for own in (first, second)
        )
        means = statistics.fmean(mine), statistics.fmean(other)
        score = PairedScore(
            *(*method, window, 0, len(shared), *means),
            difference=judge.rising(means[0]) - judge.rising(means[1]),
        )
        if seeds:
            apart = [judge.rising(a) - judge.rising(b) for a, b in zip(mine, other, strict=True)]
            around, test = interval(apart), paired_test(apart, [0.0] * len(apart))
            score = score._replace(
                seeds=len(apart), low=around.low, high=around.high, wins=test.wins, p=test.p
            )
        found.append(score)
    return found


def _done(view: RunView) -> DoneCurves:
    """Return the curves of sessions that are finished."""
    ended = [event for event in view.events if event["event"] == "ended"]
    lengths = {key: event.get("rounds") for key, event in view.starts.items()}
    found: dict[tuple[str, str, int], dict[int, Curve]] = {
        (algorithm, method, seed): {}
        for algorithm in view.algorithms
        for method in view.methods
        for seed in view.seeds
    }
    for key, curve in curves(without_broken_sessions(view.rounds, ended)).items():
        k = transition(key.session, view.config.pilot.sessions)
        if k is not None and len(curve) >= (lengths.get(key) or 1):
            found.setdefault(key[:3], {})[k] = curve
    return {key: own for key, own in found.items() if own}


def _transitions(curves_by_seed: Sequence[Mapping[int, Curve]]) -> list[int]:
    """Return the transitions that all have."""
    return sorted(set.intersection(*map(set, curves_by_seed))) if curves_by_seed else []


def _frame(scores: Sequence[PairedScore]) -> Frame:
    columns = (
        ALGORITHM,
        METHOD,
        whole("window", "the first rounds of a session, over which scores are averaged"),
        whole("seeds", "seeds that both runs have"),
        whole("transitions", "transitions that both runs have finished"),
        number("ours", "mean score of the one run"),
        number("theirs", "mean score of the other"),
        number("difference", "by how much the one run is better"),
        number("low", "lower end of the 95 % bootstrap interval"),
        number("high", "upper end of the 95 % bootstrap interval"),
        whole("wins", "seeds under which the one run is better"),
        Column("p", "number", "exact paired permutation test"),
    )
    return Frame("pairs", columns, [score._asdict() for score in scores])


def _sheet(pairs: SeedPairs, view: RunView) -> Sheet:
    judge, algorithms = view.judge, {score.algorithm for score in pairs.scores}
    several = len(algorithms) > 1
    names = ["algorithm"] if several else []
    names += ["method", "window", *pairs.names, "better by", f"{CONFIDENCE:.0%} interval", "p"]
    rows = []
    for score in pairs.scores:
        interval_text = f"{judge.shown(score.low)} to {judge.shown(score.high)}"
        texts = [score.algorithm] if several else []
        texts += [score.method, str(score.window), judge.shown(score.ours)]
        texts += [judge.shown(score.theirs), signed(judge.shown(score.difference))]
        texts.append("–" if math.isnan(score.low) else interval_text)
        texts.append("–" if math.isnan(score.p) else f"{score.p:.2g}")
        rows.append([SheetCell(text) for text in texts])
    transitions = {score.transitions for score in pairs.scores}
    count = "–".join(str(n) for n in sorted({min(transitions), max(transitions)}))
    over = "the seeds of both" if pairs.seeds else "all seeds of each"
    note = f"means over {count} transitions and {over}; better by: positive where {pairs.names[0]} "
    note += "is better" + ("; p: exact paired permutation test" if pairs.seeds else "")
    return Sheet(
        f"{judge.title} of {pairs.names[0]} beside {pairs.names[1]}",
        note,
        slug("tab", *pairs.names),
        [HeadCell(name) for name in names],
        [place <= several for place in range(len(names))],
        [rows],
    )
