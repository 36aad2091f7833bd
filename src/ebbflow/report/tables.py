"""Tables of window accuracies, from the rows of ``summary.json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.core.judging import JUDGES, Judge

SummaryRow = dict[str, Any]
ACCURACY = JUDGES["accuracy"]
WIDE = 5
"""Transitions that fit side by side on a terminal; more of them are rows."""

NONE = (math.nan, math.nan)
"""The score of a method that ended before."""


def comparison_tables(
    rows: Sequence[SummaryRow],
    algorithms: Sequence[str],
    methods: Sequence[str],
    judge: Judge = ACCURACY,
) -> list[Table]:
    """Return a table for each algorithm and window: methods by transitions, the best in bold."""
    chosen = [row for row in rows if row["transition"] is not None]
    windows = sorted({row["window"] for row in chosen})
    present = {(row["algorithm"], row["window"]) for row in chosen}
    pairs = [(a, window) for a in algorithms for window in windows if (a, window) in present]
    return [
        _table(
            [r for r in chosen if (r["algorithm"], r["window"]) == (algorithm, window)],
            methods,
            f"{algorithm}, {judge.title} over the first {window} rounds",
            judge,
        )
        for algorithm, window in pairs
    ]


REACHED = {
    "final": "session",
    "all_labels": "all test samples",
    "devices_mean": "mean of devices",
    "devices_worst": "worst tenth",
    "devices_spread": "spread",
}
"""What a session's final model achieves: keys of a summary's rows, and their columns."""


def device_tables(
    rows: Sequence[SummaryRow],
    algorithms: Sequence[str],
    methods: Sequence[str],
    judge: Judge = ACCURACY,
) -> list[Table]:
    """Return a table for each algorithm of what final models achieve on the devices' own tests.

    Each number is a mean over all transitions and seeds. Only devices with test samples of their
    own have an accuracy: without any, there is no table.
    """
    chosen = [r for r in rows if r["transition"] is not None and "devices_mean" in r]
    tables = []
    for algorithm in algorithms:
        own = [row for row in chosen if row["algorithm"] == algorithm]
        if own:
            title = f"{algorithm}, {judge.title} at the end"
            tables.append(_device_table(own, methods, title, judge))
    return tables


def _device_table(
    rows: Sequence[SummaryRow], methods: Sequence[str], title: str, judge: Judge
) -> Table:
    table = Table(
        title=title,
        caption="means over transitions and seeds; spread: standard deviation between devices",
        title_justify="left",
    )
    table.add_column("method")
    for column in REACHED.values():
        table.add_column(column, justify="right")
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        if own:
            means = (math.fsum(row[key] for row in own) / len(own) for key in REACHED)
            table.add_row(method, *map(judge.shown, means))
    return table


def _table(rows: Sequence[SummaryRow], methods: Sequence[str], title: str, judge: Judge) -> Table:
    transitions = sorted({(row["transition"], row["session"]) for row in rows})
    seeds = len({row["seed"] for row in rows})
    scores = {}
    for method in methods:
        for k, _ in transitions:
            own = [r["accuracy"] for r in rows if r["method"] == method and r["transition"] == k]
            # A mean over fewer seeds than the others' would be no comparison.
            scores[method, k] = mean_and_deviation(own) if len(own) == seeds else NONE
    pick = max if judge.higher else min
    best = {
        k: pick((scores[m, k][0] for m in methods if scores[m, k] is not NONE), default=math.nan)
        for k, _ in transitions
    }
    note = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    if NONE in scores.values():
        note += "; –: the method ended before"
    table = Table(title=title, caption=f"{note}; best in bold", title_justify="left")

    def cell(method: str, k: int) -> str:
        return _cell(*scores[method, k], judge, bold=scores[method, k][0] == best[k])

    if len(transitions) > WIDE:
        _fill_by_transition(table, transitions, methods, cell)
        means = _over_transitions(rows, methods, seeds * len(transitions))
        overall = pick((m for m in means.values() if not math.isnan(m)), default=math.nan)
        cells = (_cell(m, math.nan, judge, bold=m == overall) for m in means.values())
        table.add_section()
        table.add_row("all", *cells)
        return table
    table.add_column("method")
    for k, session in transitions:
        table.add_column(f"transition {k}\nsession {session}", justify="right")
    for method in methods:
        table.add_row(method, *(cell(method, k) for k, _ in transitions))
    return table


def _fill_by_transition(
    table: Table,
    transitions: Sequence[tuple[int, int]],
    methods: Sequence[str],
    cell: Callable[[str, int], str],
) -> None:
    """Fill a table with a row for each transition: more than a few do not fit side by side."""
    table.add_column("session\n(trans.)", no_wrap=True)
    for method in methods:
        table.add_column(method, justify="right", no_wrap=True)
    for k, session in transitions:
        table.add_row(f"{session} ({k})", *(cell(method, k) for method in methods))


def _over_transitions(
    rows: Sequence[SummaryRow], methods: Sequence[str], count: int
) -> dict[str, float]:
    """Return each method's mean over all transitions and seeds, if it has all of them."""
    own = {m: [row["accuracy"] for row in rows if row["method"] == m] for m in methods}
    return {m: math.fsum(v) / count if len(v) == count else math.nan for m, v in own.items()}


def _cell(mean: float, deviation: float, judge: Judge, *, bold: bool) -> str:
    if math.isnan(mean):
        return "–"
    text = judge.shown(mean)
    if not math.isnan(deviation):
        text += f" ± {judge.shown(deviation)}"
    return f"[bold]{text}[/]" if bold else text
