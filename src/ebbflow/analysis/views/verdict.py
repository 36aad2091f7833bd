"""Which start won, by how much, how sure that is, and what it cost: in a sentence or two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ebbflow.analysis.metrics import Interval, PairedTest, interval, paired_test
from ebbflow.analysis.run_costs import Usage
from ebbflow.analysis.run_metrics import RunMetrics
from ebbflow.analysis.views.spending import mean_session
from ebbflow.core.judging import Judge

SMALL = 0.05
"""A p-value below which chance is an unlikely explanation."""


class StartVerdict(NamedTuple):
    """The best method of an algorithm by its window accuracy, beside the next best.

    ``score`` is the winner's mean over transitions and seeds, ``lead`` by how much it is better,
    positive whatever the measure, as an interval over seeds. Without a second method, or without a
    transition, all but ``sentence`` may be empty.
    """

    algorithm: str
    sentence: str
    window: int = 0
    winner: str = ""
    runner_up: str = ""
    score: float = math.nan
    lead: Interval | None = None
    test: PairedTest | None = None


def verdicts(metrics: RunMetrics, spent: Sequence[Usage]) -> list[StartVerdict]:
    """Return a verdict for each algorithm, over the first window."""
    algorithms = dict.fromkeys(window.algorithm for window in metrics.windows)
    return [_verdict(metrics, spent, name) for name in algorithms]


def nothing_yet(metrics: RunMetrics) -> str:
    """Return the sentence that stands where there is no transition to judge by."""
    return (
        f"No transition is over yet: the first session with a choice of models is session "
        f"{metrics.pilot + 3}."
    )


def _verdict(metrics: RunMetrics, spent: Sequence[Usage], algorithm: str) -> StartVerdict:
    judge = metrics.judge
    window = min(w.window for w in metrics.windows if w.algorithm == algorithm)
    scores = {
        w.method: w.accuracies
        for w in metrics.windows
        if (w.algorithm, w.window, w.transition) == (algorithm, window, None)
    }
    unit = " %" if judge.percent else ""
    name = judge.title.removesuffix(" (%)")
    means = {method: math.fsum(values) / len(values) for method, values in scores.items()}
    order = sorted(means, key=lambda method: judge.rising(means[method]), reverse=True)
    best = order[0]
    over = f"over the first {window} round{'s' if window > 1 else ''} after a transition"
    reached = f"{judge.shown(means[best])}{unit} {name} {over}"
    if len(order) == 1:
        return StartVerdict(algorithm, f"{best} reached {reached}.", window, best, "", means[best])
    second = order[1]
    apart = [
        judge.rising(a) - judge.rising(b) for a, b in zip(scores[best], scores[second], strict=True)
    ]
    lead = interval(apart)
    test = paired_test(apart, [0.0] * len(apart))
    points = f"{judge.shown(lead.mean)}{' points' if judge.percent else ''}"
    if lead.mean == 0:
        opening = f"{best} and {second} are level: {reached}"
    elif test.wins < test.n:
        opening = (
            f"No start is clearly ahead: {best} reached {reached}, {points} better than {second} "
            "on average"
        )
    else:
        opening = f"{best} won: {reached}, {points} better than {second}, the next best"
    sentence = f"{opening}. {_certainty(lead, test, judge)}"
    cost = _cost(spent, algorithm, best, second, metrics.pilot)
    return StartVerdict(
        algorithm,
        " ".join(part for part in (sentence, cost) if part),
        window,
        best,
        second,
        means[best],
        lead,
        test,
    )


def _certainty(lead: Interval, test: PairedTest, judge: Judge) -> str:
    """Return how sure a lead is over the seeds."""
    if test.n == 1:
        return "With one seed, chance cannot be told from a difference: add seeds."
    if lead.mean == 0:
        return f"That is so over {test.n} seeds."
    bounds = f"{judge.shown(lead.low)} to {judge.shown(lead.high)}"
    ahead = f"It was ahead under {test.wins} of {test.n} seeds (interval of the lead: {bounds})"
    if test.least > SMALL:
        return (
            f"{ahead}; {test.n} seeds are too few for a test, whose p-value would be at least "
            f"{test.least:.2g}."
        )
    word = "chance is an unlikely cause" if test.p < SMALL else "chance may be the cause"
    return f"{ahead}; {word} (p = {test.p:.2g})."


def _cost(spent: Sequence[Usage], algorithm: str, best: str, second: str, pilot: int) -> str:
    """Return what a session of the winner cost beside the next best."""
    mine = mean_session(spent, algorithm, best, pilot)
    theirs = mean_session(spent, algorithm, second, pilot)
    if not mine.latency or not theirs.latency:
        return ""
    parts = (
        ("seconds", mine.latency, theirs.latency),
        ("joules", mine.energy, theirs.energy),
        ("bytes", mine.up + mine.down, theirs.up + theirs.down),
    )
    told = ", ".join(f"{_relative(a / b)} {what}" for what, a, b in parts)
    return f"With what it asks of devices beforehand, a session took {told}."


def _relative(ratio: float) -> str:
    """Return a ratio as a reader compares: more or less by how many percent.

    >>> _relative(1.042), _relative(0.9), _relative(1.0004)
    ('4.2 % more', '10.0 % fewer', 'as many')
    """
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "as many"
    return f"{abs(change):.1f} % {'more' if change > 0 else 'fewer'}"
