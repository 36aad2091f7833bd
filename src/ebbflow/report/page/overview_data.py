"""Several runs side by side: what differs between them, and who won."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ebbflow.analysis.run_metrics import RunMetrics
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.verdict import StartVerdict
from ebbflow.report.page.plain import number
from ebbflow.report.page.setting_data import settings_of, written

UNTOLD = ("engine.", "checkpoint.", "device")
"""How the work was done, which changes no result."""
MOST_KEYS = 12


class OverviewRow(TypedDict):
    """One algorithm of one run; ``run`` is its place among the runs.

    ``values`` are those of the keys that differ; ``scores`` are means by method over the first
    window, and ``lead`` is by how much the winner is better than the next best.
    """

    run: int
    algorithm: str
    state: str
    measure: str
    values: list[str]
    winner: str
    runner_up: str
    clear: bool
    lead: float | None
    low: float | None
    high: float | None
    scores: dict[str, float | None]


class Overview(TypedDict):
    """The names of all runs, and the keys of the settings that differ between them."""

    names: list[str]
    keys: list[str]
    left_out: int
    rows: list[OverviewRow]


def overview(
    views: Sequence[RunView],
    names: Sequence[str],
    states: Sequence[str],
    metrics: Sequence[RunMetrics],
    verdicts: Sequence[Sequence[StartVerdict]],
) -> Overview:
    """Return the runs side by side."""
    settings = [settings_of(view.config) for view in views]
    differing = differing_keys(settings)
    keys = differing[:MOST_KEYS]
    rows: list[OverviewRow] = []
    for place, (view, state, measured, told) in enumerate(
        zip(views, states, metrics, verdicts, strict=True)
    ):
        by_algorithm = {verdict.algorithm: verdict for verdict in told}
        for algorithm in view.algorithms or tuple(view.config.algorithm):
            rows.append(
                OverviewRow(
                    run=place,
                    algorithm=algorithm,
                    state=state,
                    measure=view.judge.title,
                    values=[written(settings[place].get(key)) for key in keys],
                    **_outcome(by_algorithm.get(algorithm)),  # type: ignore[typeddict-item]
                    scores=_scores(measured, algorithm),
                )
            )
    return Overview(names=list(names), keys=keys, left_out=len(differing) - len(keys), rows=rows)


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ between configurations, and that may change a result.

    >>> differing_keys([{"rounds": 5, "seeds": [1]}, {"rounds": 6, "seeds": [1]}])
    ['rounds']
    """
    every = dict.fromkeys(key for own in settings for key in own)
    told = [key for key in every if not key.startswith(UNTOLD)]
    return [key for key in told if any(own.get(key) != settings[0].get(key) for own in settings)]


def _outcome(verdict: StartVerdict | None) -> dict[str, Any]:
    lead = None if verdict is None else verdict.lead
    test = None if verdict is None else verdict.test
    return {
        "winner": "" if verdict is None else verdict.winner,
        "runner_up": "" if verdict is None else verdict.runner_up,
        "clear": test is not None and test.n > 1 and test.wins == test.n,
        "lead": None if lead is None else number(lead.mean),
        "low": None if lead is None else number(lead.low),
        "high": None if lead is None else number(lead.high),
    }


def _scores(metrics: RunMetrics, algorithm: str) -> dict[str, float | None]:
    own = [w for w in metrics.windows if w.algorithm == algorithm and w.transition is None]
    first = min((w.window for w in own), default=0)
    return {
        w.method: number(math.fsum(w.accuracies) / len(w.accuracies))
        for w in own
        if w.window == first
    }
