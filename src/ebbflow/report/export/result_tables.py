"""Tables of what is computed from records: window scores, recovery times, gains, costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ebbflow.analysis.cost import RoundCost, total
from ebbflow.analysis.metrics import (
    Target,
    interval,
    mean_and_deviation,
    paired_test,
    typical_ratio,
)
from ebbflow.analysis.run_metrics import metrics_of
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.spending import PARTS, spending
from ebbflow.core.errors import EbbflowError
from ebbflow.report.export.columns import (
    ALGORITHM,
    KEY,
    METHOD,
    SESSION,
    Column,
    ExportRow,
    number,
    text,
    whole,
)
from ebbflow.report.export.record_tables import keyed
from ebbflow.runs.summary import (
    Key,
    curves,
    transition,
    window_accuracy,
    without_broken_sessions,
)

TARGETS = (Target(0.95), Target(0.97))
"""What recovery times refer to: shares of the reference's peak, as in `ebbflow metrics`."""


class WindowScore(NamedTuple):
    """The mean score of a method over a window and seeds; no transition means over all of them.

    It is nan unless the method has finished the session under every seed.
    """

    algorithm: str
    method: str
    window: int
    transition: int | None
    session: int | None
    seeds: int
    mean: float
    deviation: float
    best: bool


def window_scores(view: RunView) -> list[WindowScore]:
    """Return the window scores that a comparison's table shows, by algorithm and window."""
    ended = [event for event in view.events if event["event"] == "ended"]
    lengths = {key: event.get("rounds") for key, event in view.starts.items()}
    done = {
        key: curve
        for key, curve in curves(without_broken_sessions(view.rounds, ended)).items()
        if transition(key.session, view.config.pilot.sessions) is not None
        and len(curve) >= (lengths.get(key) or 1)
    }
    found = []
    for algorithm in view.algorithms:
        own = {key: curve for key, curve in done.items() if key.algorithm == algorithm}
        for window in view.config.window if own else ():
            scores = {key: window_accuracy(curve, window) for key, curve in own.items()}
            found += _scored(view, algorithm, window, scores)
    return found


def _scored(
    view: RunView, algorithm: str, window: int, scores: dict[Key, float]
) -> list[WindowScore]:
    seeds = [seed for seed in view.seeds if any(key.seed == seed for key in scores)]
    sessions = sorted({key.session for key in scores})
    found = []
    for session in (*sessions, None):
        means = {}
        for method in view.methods:
            over = sessions if session is None else [session]
            keys = [[Key(algorithm, method, seed, s) for s in over] for seed in seeds]
            # A mean over fewer seeds or sessions than the others' would be no comparison.
            if all(key in scores for own in keys for key in own):
                each = [statistics.fmean(scores[key] for key in own) for own in keys]
                means[method] = mean_and_deviation(each)
            else:
                means[method] = math.nan, math.nan
        pick = max if view.judge.higher else min
        best = pick((m for m, _ in means.values() if not math.isnan(m)), default=math.nan)
        number_of = None if session is None else transition(session, view.config.pilot.sessions)
        found += [
            WindowScore(
                *(algorithm, method, window, number_of, session, len(seeds)),
                *(mean, deviation, mean == best),
            )
            for method, (mean, deviation) in means.items()
        ]
    return found


def summary_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of window scores."""
    return (
        ALGORITHM,
        METHOD,
        whole("window", "the first rounds of a session, over which scores are averaged"),
        whole("transition", "the transition; empty: the mean over all of them"),
        SESSION,
        text("measure", "what is averaged"),
        whole("seeds", "seeds that the mean rests on"),
        number("mean", "mean over seeds; empty if the method has not finished the session"),
        number("deviation", "standard deviation over seeds (n - 1); empty for one seed"),
        Column("best", "switch", "whether no other method has a better mean"),
    )


def summary_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield the window scores."""
    for score in window_scores(view):
        yield {**_known(score._asdict()), "measure": view.judge.name}


def metric_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of metrics."""
    return (
        ALGORITHM,
        METHOD,
        text("reference", "the method that it is compared with"),
        text("metric", "window score, rounds to target, speed-up, gain or gain per round"),
        text("of", "the window's rounds, or the target"),
        Column("with_probe", "switch", "whether probe and survey count as rounds"),
        whole("transition", "the transition; empty: the mean over all of them"),
        SESSION,
        whole("seeds", "seeds that the mean rests on"),
        whole("reached", "seeds under which the target was reached"),
        number("mean", "mean over seeds, the geometric one of speed-ups"),
        number("deviation", "standard deviation over seeds (n - 1)"),
        number("low", "lower end of the 95 % bootstrap interval"),
        number("high", "upper end of the 95 % bootstrap interval"),
        number("p", "exact paired permutation test against the reference"),
    )


def metric_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield what `ebbflow metrics` shows: window scores, times to a target, and gains."""
    metrics = metrics_of(view.config, view.rounds, view.events, TARGETS)
    reference = metrics.reference

    def cells(row: Any, metric: str, of: str, *, probed: bool | None = None) -> ExportRow:
        return {
            **{name: getattr(row, name) for name in ("algorithm", "method")},
            **{name: getattr(row, name) for name in ("transition", "session")},
            **{"reference": reference, "metric": metric, "of": of, "with_probe": probed},
        }

    ours = {w[:1] + w[2:5]: w.accuracies for w in metrics.windows if w.method == reference}
    for row in metrics.windows:
        p = paired_test(ours[row[:1] + row[2:5]], row.accuracies).p
        yield {
            **cells(row, "window score", f"{row.window} rounds"),
            **_over_seeds(row.accuracies),
            "p": None if row.method == reference or math.isnan(p) else p,
        }
    for speed in metrics.speeds:
        for probed, rounds, ratios in (
            (False, speed.rounds, speed.speed_ups),
            (True, speed.with_probe, speed.speed_ups_with_probe),
        ):
            yield {
                **cells(speed, "rounds to target", str(speed.target), probed=probed),
                **_over_seeds(rounds),
                "reached": sum(map(math.isfinite, rounds)),
            }
            if speed.method != reference:
                ratio = {"seeds": len(ratios), "mean": typical_ratio(ratios)}
                yield {
                    **cells(speed, "speed-up", str(speed.target), probed=probed),
                    **_known(ratio),
                }
    for gain in metrics.gains:
        p = paired_test(gain.gains, [0.0] * len(gain.gains)).p
        chance = {"p": None if math.isnan(p) else p}
        yield {**cells(gain, "gain", "session"), **_over_seeds(gain.gains), **chance}
        yield {**cells(gain, "gain per round", "session"), **_over_seeds(gain.per_round), **chance}


def _over_seeds(values: Sequence[float]) -> ExportRow:
    around = interval(values)
    names = ("seeds", "mean", "deviation", "low", "high")
    return _known(dict(zip(names, around, strict=True)))


def _known(cells: ExportRow) -> ExportRow:
    """Return cells with what is not known left empty."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in cells.items()
    }


def cost_columns(views: Sequence[RunView]) -> tuple[Column, ...]:
    """Return the columns of the table of costs."""
    return (
        *KEY,
        text("part", f"what it was spent on: {', '.join(PARTS)}"),
        number("seconds", "latency over the wireless cell"),
        number("joules", "energy of all devices"),
        number("bytes_down", "bytes that devices received, a model once for each"),
        number("bytes_up", "bytes that devices sent"),
    )


def cost_rows(view: RunView) -> Iterator[ExportRow]:
    """Yield what each session cost each method, by what it was spent on."""
    spent = spending(view)
    if spent.reason:
        where = view.folder or view.name
        raise EbbflowError(f"the costs of {where} are not known: {spent.reason}")
    for usage in spent.usages:
        key = Key(usage.algorithm, usage.method, usage.seed, usage.session)
        training = total([RoundCost(), *usage.rounds])
        parts = dict(zip(PARTS, (training, usage.probe, usage.survey), strict=True))
        for part, cost in parts.items():
            if part == "training" or cost != RoundCost():
                yield {
                    **keyed(view, key),
                    "part": part,
                    "seconds": cost.latency,
                    "joules": cost.energy,
                    "bytes_down": cost.down,
                    "bytes_up": cost.up,
                }
