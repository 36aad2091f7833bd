"""What our rows and the paper's agree in, and the tables that show them together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chang2025.causes import UNEXPLAINED, Difference, cause_of
from chang2025.cells import METHODS
from chang2025.collecting import mean_text
from chang2025.rendering import Grid, Report
from chang2025.rows import LARGE, ComparedRow, PaperValue, accuracy_rows, first_ten_rows
from chang2025.studies import study
from chang2025.windows import Window
from ebbflow.config.defaults import SETTINGS
from ebbflow.config.paper_rows import DATASETS

FIRST_TEN = 10
"""The rounds that the appendix averages over, as it says."""
SCATTER = 2.0
"""So many of the paper's standard deviations over seeds may be chance."""


@dataclass(frozen=True)
class Agreement:
    """Over counted rows: winners and orders that agree, and typical differences by method."""

    rows: int
    winners: int
    orders: int
    medians: Mapping[str, float]
    warm_first: int
    warm_first_theirs: int

    @property
    def share(self) -> float:
        """The share of rows whose winner is the paper's."""
        return self.winners / self.rows if self.rows else math.nan

    @property
    def median(self) -> float:
        """The largest of the methods' median absolute differences."""
        return max(self.medians.values(), default=math.nan)


def agreement(rows: Sequence[ComparedRow]) -> Agreement:
    """Return what counted rows agree in."""
    counted = [row for row in rows if row.counted and row.theirs]
    columns = dict.fromkeys(column for row in counted for column in row.both())
    return Agreement(
        len(counted),
        sum(row.same_winner for row in counted),
        sum(row.same_order for row in counted),
        {
            column: median(abs(row.difference(column)) for row in counted if column in row.both())
            for column in columns
        },
        sum(row.orders()[0][:1] == ["warm_start"] for row in counted),
        sum(row.orders()[1][:1] == ["warm_start"] for row in counted),
    )


def sentence(agreed: Agreement) -> str:
    """Return the agreement as a sentence."""
    if not agreed.rows:
        return "Nothing to compare yet."
    medians = ", ".join(f"{method} {value:.2f}" for method, value in agreed.medians.items())
    return (
        f"In {agreed.winners} of {agreed.rows} rows ({agreed.share:.0%}) the best start is the "
        f"paper's, in {agreed.orders} all starts are in its order; `warm_start` is first in "
        f"{agreed.warm_first} (in the paper: {agreed.warm_first_theirs}). Median absolute "
        f"difference in points: {medians}."
    )


def too_short(rows: Sequence[ComparedRow], window: Window) -> str:
    """Return a sentence if sessions have fewer rounds than a window, which then has all of them."""
    wanted = window.length - window.early
    fewest = min((row.family.config.rounds or wanted for row in rows), default=wanted)
    return f" A session has {fewest} rounds only: all of them count." if fewest < wanted else ""


def comparison(name: str, results: Path, window: Window) -> Report:
    """Return an accuracy table or a table of the appendix beside the paper's."""
    if name.startswith("first10"):
        rows = first_ten_rows(name, results, window)
    else:
        rows = accuracy_rows(name.removesuffix("-accuracy"), results, window)
    agreed = agreement(rows)
    grids = [Grid(_title(own), *_method_table(own), sections=2) for own in _grouped(rows)]
    listed = large_differences(rows)
    if listed.rows:
        grids.append(listed)
    return Report(
        name,
        study(name).title,
        [f"Mean accuracy in percent over {window}.{too_short(rows, window)}", sentence(agreed)],
        grids,
        [line for row in rows for line in row.flat()],
        {
            "window": window.mark,
            "rows": agreed.rows,
            "winner_agrees": agreed.winners,
            "order_agrees": agreed.orders,
            "median_absolute_difference": dict(agreed.medians),
        },
    )


def _grouped(rows: Sequence[ComparedRow]) -> list[list[ComparedRow]]:
    groups: dict[tuple[str, str, str], list[ComparedRow]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.setting, row.model), []).append(row)
    return list(groups.values())


def _title(rows: Sequence[ComparedRow]) -> str:
    first = rows[0]
    return f"{DATASETS[first.dataset]}, {first.setting}, {first.model}"


def _method_table(rows: Sequence[ComparedRow]) -> tuple[list[str], list[list[str]]]:
    """Return a table of ours over theirs: three lines for every row of the paper's."""
    methods = [m for m in METHODS if any(m in row.ours for row in rows)]
    lines = []
    for row in rows:
        verdict = _verdict(row) if row.theirs else ""
        best = max((row.mean(method) for method in row.ours), default=math.nan)
        ours = [
            _strong(mean_text(row.ours[m]), row.mean(m) == best) if m in row.ours else ""
            for m in methods
        ]
        lines.append([row.label, str(row.transition), f"ours ({len(row.seeds)})", *ours, verdict])
        if row.theirs:
            top = max(value.mean for value in row.theirs.values())
            theirs = [
                _strong(printed(row.theirs[m]), row.theirs[m].mean == top)
                if m in row.theirs
                else ""
                for m in methods
            ]
            apart = [_apart(row, m) if m in row.both() else "" for m in methods]
            lines.append(["", "", "paper", *theirs, ""])
            lines.append(["", "", "apart", *apart, ""])
    head = ["algorithm", "transition", "", *methods, "agrees"]
    return head, lines


def compact_table(rows: Sequence[ComparedRow]) -> tuple[list[str], list[list[str]]]:
    """Return a table with one line for every row: in a cell ours, below it theirs and how far."""
    methods = [m for m in METHODS if any(m in row.ours for row in rows)]
    lines = []
    for row in rows:
        best = max(map(row.mean, row.ours))
        cells = []
        for method in methods:
            text = ""
            if method in row.ours:
                text = _strong(mean_text(row.ours[method]), row.mean(method) == best)
            if method in row.both():
                text += f"<br>{row.theirs[method].mean:.2f}: {_apart(row, method)}"
            cells.append(text)
        verdict = _verdict(row) if row.theirs else ""
        where = [row.setting, row.model] if row.study.startswith("first10") else [row.setting]
        lines.append([*where, row.label, str(row.transition), *cells, verdict])
    first = ["labels", "model"] if rows and rows[0].study.startswith("first10") else ["setting"]
    return [*first, "algorithm", "transition", *methods, "agrees"], lines


def _verdict(row: ComparedRow) -> str:
    if row.same_order:
        return "order"
    return "winner" if row.same_winner else "no"


def _strong(text: str, is_so: bool) -> str:
    return f"**{text}**" if is_so else text


def printed(value: PaperValue) -> str:
    """Return an accuracy of the paper as it is shown."""
    return f"{value.mean:.2f}" if math.isnan(value.std) else f"{value.mean:.2f} ± {value.std:.2f}"


def _apart(row: ComparedRow, column: str) -> str:
    off = row.deviations(column)
    text = f"{row.difference(column):+.2f}"
    return text if math.isnan(off) else f"{text} ({off:+.1f} σ)"


def large_differences(rows: Sequence[ComparedRow]) -> Grid:
    """Return every large difference of a counted row with its cause."""
    lines = []
    for row in rows:
        if not row.counted:
            continue
        for column in row.large():
            lines.append(
                [
                    f"{DATASETS[row.dataset]}, {row.setting}",
                    row.algorithm + (f", {row.model}" if row.study.startswith("first10") else ""),
                    str(row.transition),
                    column,
                    f"{row.mean(column):.2f}",
                    f"{row.theirs[column].mean:.2f}",
                    _apart(row, column),
                    _cause(row, column),
                ]
            )
    head = ["setting", "algorithm", "transition", "method", "ours", "paper", "difference", "cause"]
    return Grid(f"Differences of more than {LARGE:g} points", head, lines, sections=2)


def _cause(row: ComparedRow, column: str) -> str:
    """Return why a difference is large: what we know, or the scatter of the paper's seeds."""
    known = cause_of(
        Difference(
            row.study,
            row.dataset,
            row.setting,
            row.algorithm,
            row.transition,
            column,
            theirs=row.theirs[column].mean,
            highest=row.highest(column),
            rounds=row.family.config.rounds or 0,
            paper_rounds=SETTINGS[row.dataset].rounds,
        )
    )
    if known == UNEXPLAINED and abs(row.deviations(column)) <= SCATTER:
        return f"seeds: within {SCATTER:g} standard deviations of the paper's own"
    return known
