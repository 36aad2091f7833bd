"""How the methods compare: scores with intervals, paired tests, time to accuracy, gains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypedDict

from ebbflow.analysis.metrics import (
    Gain,
    PairedTest,
    Speed,
    interval,
    paired_test,
    typical_ratio,
)
from ebbflow.analysis.run_metrics import RunMetrics
from ebbflow.analysis.views.run_view import RunView, key_of
from ebbflow.analysis.views.verdict import SMALL
from ebbflow.core.judging import LABELLED, Judge
from ebbflow.report.page.plain import number, numbers
from ebbflow.runs.summary import Key, curves

ENOUGH = 6
"""Seeds with which the smallest possible p-value, 2^(1-n), falls below `SMALL`."""


class ScoreFacts(TypedDict):
    """What a method scored at one transition, or as a mean over all (None), by seed.

    ``what`` names the score: over the first rounds of a session, after its last round, or of its
    final model on all test samples, whatever labels the session has.
    """

    algorithm: str
    method: str
    what: str
    transition: int | None
    session: int | None
    values: list[float | None]
    mean: float | None
    low: float | None
    high: float | None


class PairFacts(TypedDict):
    """Two methods under the same seeds; ``difference`` is how much the first is better."""

    algorithm: str
    what: str
    better: str
    other: str
    difference: float | None
    low: float | None
    high: float | None
    wins: int
    seeds: int
    p: float | None
    words: str


class SpeedFacts(TypedDict):
    """How soon a method reached a target: means over seeds, None where one did not get there."""

    algorithm: str
    method: str
    target: str
    transition: int | None
    session: int | None
    level: float | None
    rounds: float | None
    charged: float | None
    reached: int
    seeds: int
    speed_up: str


class GainFacts(TypedDict):
    """What the reference gained over a method in a session, summed over its rounds."""

    algorithm: str
    method: str
    transition: int | None
    session: int | None
    mean: float | None
    low: float | None
    high: float | None
    per_round: float | None
    wins: int
    seeds: int
    p: float | None


class ScoreSection(TypedDict):
    """Everything on how methods compare; ``seeds`` by algorithm are those the numbers rest on."""

    reference: str
    seeds: dict[str, list[int]]
    scores: list[ScoreFacts]
    pairs: list[PairFacts]
    tested: str
    targets: list[str]
    speeds: list[SpeedFacts]
    gains: list[GainFacts]


def score_section(view: RunView, metrics: RunMetrics) -> ScoreSection:
    """Return how the methods of a run compare."""
    judge = metrics.judge
    scores = list(_scores(view, metrics))
    seeds = max(map(len, metrics.seeds.values()), default=0)
    return ScoreSection(
        reference=metrics.reference,
        seeds={algorithm: list(own) for algorithm, own in metrics.seeds.items()},
        scores=[_score_facts(score) for score in scores],
        pairs=list(_pairs(scores, judge)),
        tested=words_on_tests(seeds),
        targets=list(dict.fromkeys(str(speed.target) for speed in metrics.speeds)),
        speeds=[_speed_facts(speed, judge) for speed in metrics.speeds],
        gains=[_gain_facts(gain) for gain in metrics.gains],
    )


# --- scores --------------------------------------------------------------------------------------


class _Score(NamedTuple):
    algorithm: str
    method: str
    what: str
    transition: int | None
    session: int | None
    values: list[float]


def _scores(view: RunView, metrics: RunMetrics) -> Iterator[_Score]:
    """Yield window accuracies as they were measured, then the last round's and all labels'."""
    windows = metrics.windows
    for w in windows:
        what = f"first {w.window} rounds" if w.window > 1 else "first round"
        yield _Score(w.algorithm, w.method, what, w.transition, w.session, w.accuracies)
    last = {key: curve[-1] for key, curve in curves(view.rounds).items()}
    tested = {key_of(e): float(e["all"]) for e in view.events if e["event"] == "tested"}
    everything = "all labels" if view.config.task in LABELLED else "all test samples"
    for what, values in (("last round", last), (everything, tested)):
        for algorithm, seeds in metrics.seeds.items():
            places = dict.fromkeys(
                (w.transition, w.session)
                for w in windows
                if w.algorithm == algorithm and w.session is not None
            )
            yield from _of_sessions(algorithm, what, seeds, list(places), metrics.methods, values)


def _of_sessions(
    algorithm: str,
    what: str,
    seeds: Sequence[int],
    places: Sequence[tuple[int | None, int | None]],
    methods: Sequence[str],
    values: Mapping[Key, float],
) -> Iterator[_Score]:
    """Yield a method's score at every transition, and their mean; none if one was not recorded."""
    for method in methods:
        keys = [
            [Key(algorithm, method, seed, session or 0) for seed in seeds] for _, session in places
        ]
        if not keys or not all(key in values for own in keys for key in own):
            continue
        table = [[values[key] for key in own] for own in keys]
        for (k, session), row in zip(places, table, strict=True):
            yield _Score(algorithm, method, what, k, session, row)
        means = [statistics.fmean(column) for column in zip(*table, strict=True)]
        yield _Score(algorithm, method, what, None, None, means)


def _score_facts(score: _Score) -> ScoreFacts:
    around = interval(score.values)
    return ScoreFacts(
        algorithm=score.algorithm,
        method=score.method,
        what=score.what,
        transition=score.transition,
        session=score.session,
        values=numbers(score.values),
        mean=number(around.mean),
        low=number(around.low),
        high=number(around.high),
    )


# --- paired tests --------------------------------------------------------------------------------


def _pairs(scores: Sequence[_Score], judge: Judge) -> Iterator[PairFacts]:
    """Yield every pair of methods by their means over transitions, the better one first."""
    groups: dict[tuple[str, str], list[_Score]] = {}
    for score in scores:
        if score.transition is None:
            groups.setdefault((score.algorithm, score.what), []).append(score)
    for (algorithm, what), own in groups.items():
        order = sorted(
            own, key=lambda score: judge.rising(statistics.fmean(score.values)), reverse=True
        )
        for ours, theirs in combinations(order, 2):
            apart = [
                judge.rising(a) - judge.rising(b)
                for a, b in zip(ours.values, theirs.values, strict=True)
            ]
            around, test = interval(apart), paired_test(apart, [0.0] * len(apart))
            yield PairFacts(
                algorithm=algorithm,
                what=what,
                better=ours.method,
                other=theirs.method,
                difference=number(around.mean),
                low=number(around.low),
                high=number(around.high),
                wins=test.wins,
                seeds=test.n,
                p=number(test.p, 3),
                words=_in_words(around.mean, test),
            )


def _in_words(mean: float, test: PairedTest) -> str:
    if mean == 0:
        return "level"
    if test.n == 1:
        return "one seed: cannot be tested"
    if test.least > SMALL:
        return "too few seeds to test"
    return "unlikely to be chance" if test.p < SMALL else "may be chance"


def words_on_tests(seeds: int) -> str:
    """Return what a paired test over so many seeds can show.

    >>> words_on_tests(3)
    'With 3 seeds the smallest p-value possible is 0.25, so no difference can be told from chance \
by this test alone: at least 6 seeds are needed for a p-value below 0.05.'
    """
    if seeds < 1:
        return ""
    if seeds == 1:
        return f"One seed allows no test: at least {ENOUGH} seeds are needed for one that tells."
    least = 2.0 ** (1 - seeds)
    opening = f"With {seeds} seeds the smallest p-value possible is {least:.2g}"
    if least > SMALL:
        return (
            f"{opening}, so no difference can be told from chance by this test alone: at least "
            f"{ENOUGH} seeds are needed for a p-value below {SMALL:g}."
        )
    return (
        f"{opening}. A p-value below {SMALL:g} makes chance an unlikely cause; of many tests, some "
        "are below it by chance."
    )


# --- time to accuracy, and gains -----------------------------------------------------------------


def _speed_facts(speed: Speed, judge: Judge) -> SpeedFacts:
    return SpeedFacts(
        algorithm=speed.algorithm,
        method=speed.method,
        target=str(speed.target),
        transition=speed.transition,
        session=speed.session,
        level=number(judge.rising(statistics.fmean(speed.levels))),
        rounds=number(statistics.fmean(speed.rounds), 4),
        charged=number(statistics.fmean(speed.with_probe), 4),
        reached=sum(map(math.isfinite, speed.rounds)),
        seeds=len(speed.rounds),
        speed_up=_times(typical_ratio(speed.speed_ups_with_probe)),
    )


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "?"
    return "∞" if math.isinf(ratio) else f"{ratio:.2f} ×"


def _gain_facts(gain: Gain) -> GainFacts:
    around, test = interval(gain.gains), paired_test(gain.gains, [0.0] * len(gain.gains))
    return GainFacts(
        algorithm=gain.algorithm,
        method=gain.method,
        transition=gain.transition,
        session=gain.session,
        mean=number(around.mean, 4),
        low=number(around.low, 4),
        high=number(around.high, 4),
        per_round=number(statistics.fmean(gain.per_round), 4),
        wins=test.wins,
        seeds=test.n,
        p=number(test.p, 3),
    )
