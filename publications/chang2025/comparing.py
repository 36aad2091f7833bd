"""Ours beside theirs: rows of the accuracy tables and of the appendix, and what they agree in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from chang2025 import reference
from chang2025.causes import UNEXPLAINED, Difference, cause_of
from chang2025.cells import METHODS
from chang2025.collecting import Family, check_of, chosen, families, shown
from chang2025.rendering import Grid, Report
from chang2025.results import Lane
from chang2025.studies import APPENDIX, RAN, accuracy_file, study
from chang2025.windows import Window
from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.config.defaults import SETTINGS
from ebbflow.config.paper_rows import DATASETS, KINDS

LARGE = 2.5
"""Points beyond which a difference is listed, with a cause or as unexplained."""
SCATTER = 2.0
"""So many of the paper's standard deviations over seeds may be chance."""
FIRST_TEN = 10
"""The rounds of the appendix, which states them."""


class Theirs(NamedTuple):
    """An accuracy of the paper; ``std`` is nan where it gives none."""

    mean: float
    std: float = math.nan


@dataclass(frozen=True)
class Row:
    """One row of a table: ours and theirs by method, or by variant in an ablation.

    ``counted`` rows are those of algorithms that the paper really ran, in their own set-up.
    """

    study: str
    family: Family
    algorithm: str
    transition: int
    ours: Mapping[str, Sequence[float]]
    theirs: Mapping[str, Theirs]
    counted: bool = True
    note: str = ""

    @property
    def dataset(self) -> str:
        """The data set's name."""
        return self.family.config.dataset

    @property
    def setting(self) -> str:
        """The overlap and alpha, or the appendix's labels."""
        return self.family.setting

    @property
    def model(self) -> str:
        """The model's kind."""
        return self.family.config.model.kind or ""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds behind ours."""
        return self.family.seeds

    @property
    def label(self) -> str:
        """The algorithm, in parentheses where it is not counted, with what is special."""
        text = f"{self.algorithm}, {self.note}" if self.note else self.algorithm
        return text if self.counted else f"({text})"

    def mean(self, column: str) -> float:
        """Return our mean over seeds."""
        return fmean(self.ours[column])

    def highest(self, column: str) -> float:
        """Return our highest accuracy in any round of the session, over all seeds."""
        key = Lane(self.algorithm, column, self.family.session(self.transition))
        return max(max(result.curves[key]) for result in self.family.results)

    def both(self) -> list[str]:
        """Return the columns that both have."""
        return [column for column in self.ours if column in self.theirs]

    def difference(self, column: str) -> float:
        """Return ours minus theirs, in points."""
        return self.mean(column) - self.theirs[column].mean

    def deviations(self, column: str) -> float:
        """Return the difference in the paper's standard deviations."""
        std = self.theirs[column].std
        return self.difference(column) / std if std > 0 else math.nan

    def orders(self) -> tuple[list[str], list[str]]:
        """Return the columns from best to worst, ours and theirs."""
        columns = self.both()
        ours = sorted(columns, key=self.mean, reverse=True)
        theirs = sorted(columns, key=lambda column: self.theirs[column].mean, reverse=True)
        return ours, theirs

    @property
    def same_winner(self) -> bool:
        """Whether the best method is the paper's."""
        ours, theirs = self.orders()
        return ours[:1] == theirs[:1]

    @property
    def same_order(self) -> bool:
        """Whether all methods are in the paper's order."""
        ours, theirs = self.orders()
        return ours == theirs

    def large(self) -> list[str]:
        """Return the columns with a large difference."""
        return [column for column in self.both() if abs(self.difference(column)) > LARGE]

    def flat(self) -> Iterator[dict[str, Any]]:
        """Yield a line of a CSV for every column."""
        for column, values in self.ours.items():
            mean, deviation = mean_and_deviation(values)
            theirs = self.theirs.get(column)
            yield {
                "dataset": self.dataset,
                "setting": self.setting,
                "model": self.model,
                "algorithm": self.algorithm,
                "transition": self.transition,
                "column": column,
                "seeds": list(self.seeds),
                "ours": mean,
                "ours_std": deviation,
                "theirs": None if theirs is None else theirs.mean,
                "theirs_std": math.nan if theirs is None else theirs.std,
                "difference": math.nan if theirs is None else self.difference(column),
                "deviations": math.nan if theirs is None else self.deviations(column),
                "winner_agrees": self.same_winner if self.theirs else None,
                "order_agrees": self.same_order if self.theirs else None,
                "counted": self.counted,
                "cells": self.family.name,
            }


# --- rows ----------------------------------------------------------------------------------------


class Where(NamedTuple):
    """Which row of an accuracy table."""

    overlap: float
    alpha: float
    algorithm: str
    transition: int


def published_rows(dataset: str) -> dict[Where, dict[str, Theirs]]:
    """Return the paper's accuracy table of a data set: by row, by method."""
    found: dict[Where, dict[str, Theirs]] = {}
    for row in reference.accuracies(accuracy_file(dataset)):
        if row.dataset == dataset:
            where = Where(row.overlap, row.alpha, row.algorithm, row.transition)
            found.setdefault(where, {})[row.method] = Theirs(row.accuracy, row.std)
    return found


def accuracy_rows(dataset: str, results: Path, window: Window) -> list[Row]:
    """Return the rows of an accuracy table for which there are results."""
    name = f"{dataset}-accuracy"
    paper = published_rows(dataset)
    found = []
    for family in chosen(families(name, results)):
        part = family.config.partition
        overlap, alpha = part.overlap or 0.0, part.alpha
        check = check_of(family)
        for algorithm, k in product(family.config.algorithm, (2, 4)):
            ours = _ours(family, algorithm, k, window)
            if ours:
                theirs = paper.get(Where(overlap, alpha, _as_run(algorithm), k), {})
                counted = algorithm in RAN and not check
                found.append(Row(name, family, algorithm, k, ours, theirs, counted, check))
    return found


def _as_run(algorithm: str) -> str:
    """Return what the paper's authors ran under an algorithm's name."""
    return "scaffold-authors" if algorithm == "scaffold" else algorithm


def _ours(
    family: Family, algorithm: str, transition: int, window: Window
) -> dict[str, list[float]]:
    each = {
        method: family.windows(algorithm, method, transition, window)
        for method in METHODS
        if method in family.config.methods
    }
    return {method: values for method, values in each.items() if values}


def first_ten_rows(name: str, results: Path, window: Window) -> list[Row]:
    """Return the rows of a table of the appendix for which there are results."""
    kinds = {title: kind for kind, title in KINDS.items()}
    paper: dict[tuple[str, str, str, int], dict[str, Theirs]] = {}
    for row in reference.table(study(name).reference or ""):
        dataset = reference.NAMES[row["dataset_model"].partition(" (")[0]]
        key = (
            dataset,
            kinds[row["label_distribution"]],
            reference.ALGORITHMS[row["algorithm"]],
            int(row["transition"]),
        )
        method = reference.method_name(row["method"])
        paper.setdefault(key, {})[method] = Theirs(float(row["accuracy"]))
    found = []
    for family in chosen(families(name, results)):
        config = family.config
        for algorithm, k in product(config.algorithm, (1, 2, 3)):
            ours = _ours(family, algorithm, k, window)
            if ours:
                key = config.dataset, config.partition.kind, _as_run(algorithm), k
                theirs = paper.get(key, {})
                counted = algorithm in APPENDIX and bool(theirs) and family.scale == "full"
                found.append(Row(name, family, algorithm, k, ours, theirs, counted))
    return found


# --- what they say -------------------------------------------------------------------------------


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


def agreement(rows: Sequence[Row]) -> Agreement:
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


def sentence(found: Agreement) -> str:
    """Return the agreement as a sentence."""
    if not found.rows:
        return "Nothing to compare yet."
    medians = ", ".join(f"{method} {value:.2f}" for method, value in found.medians.items())
    return (
        f"In {found.winners} of {found.rows} rows ({found.share:.0%}) the best start is the "
        f"paper's, in {found.orders} all starts are in its order; `warm_start` is first in "
        f"{found.warm_first} (in the paper: {found.warm_first_theirs}). Median absolute difference "
        f"in points: {medians}."
    )


def too_short(rows: Sequence[Row], window: Window) -> str:
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
    found = agreement(rows)
    grids = [Grid(_title(own), *_method_table(own), sections=2) for own in _grouped(rows)]
    listed = large_differences(rows)
    if listed.rows:
        grids.append(listed)
    return Report(
        name,
        study(name).title,
        [f"Mean accuracy in percent over {window}.{too_short(rows, window)}", sentence(found)],
        grids,
        [line for row in rows for line in row.flat()],
        {
            "window": window.mark,
            "rows": found.rows,
            "winner_agrees": found.winners,
            "order_agrees": found.orders,
            "median_absolute_difference": dict(found.medians),
        },
    )


def _grouped(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.setting, row.model), []).append(row)
    return list(groups.values())


def _title(rows: Sequence[Row]) -> str:
    first = rows[0]
    return f"{DATASETS[first.dataset]}, {first.setting}, {first.model}"


def _method_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return a table of ours over theirs: three lines for every row of the paper's."""
    methods = [m for m in METHODS if any(m in row.ours for row in rows)]
    lines = []
    for row in rows:
        verdict = _verdict(row) if row.theirs else ""
        best = max((row.mean(method) for method in row.ours), default=math.nan)
        ours = [
            _strong(shown(row.ours[m]), row.mean(m) == best) if m in row.ours else ""
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


def compact_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return a table with one line for every row: in a cell ours, below it theirs and how far."""
    methods = [m for m in METHODS if any(m in row.ours for row in rows)]
    lines = []
    for row in rows:
        best = max(map(row.mean, row.ours))
        cells = []
        for method in methods:
            text = ""
            if method in row.ours:
                text = _strong(shown(row.ours[method]), row.mean(method) == best)
            if method in row.both():
                text += f"<br>{row.theirs[method].mean:.2f}: {_apart(row, method)}"
            cells.append(text)
        verdict = _verdict(row) if row.theirs else ""
        where = [row.setting, row.model] if row.study.startswith("first10") else [row.setting]
        lines.append([*where, row.label, str(row.transition), *cells, verdict])
    first = ["labels", "model"] if rows and rows[0].study.startswith("first10") else ["setting"]
    return [*first, "algorithm", "transition", *methods, "agrees"], lines


def _verdict(row: Row) -> str:
    if row.same_order:
        return "order"
    return "winner" if row.same_winner else "no"


def _strong(text: str, is_so: bool) -> str:
    return f"**{text}**" if is_so else text


def printed(value: Theirs) -> str:
    """Return an accuracy of the paper as it is shown."""
    return f"{value.mean:.2f}" if math.isnan(value.std) else f"{value.mean:.2f} ± {value.std:.2f}"


def _apart(row: Row, column: str) -> str:
    off = row.deviations(column)
    text = f"{row.difference(column):+.2f}"
    return text if math.isnan(off) else f"{text} ({off:+.1f} σ)"


def large_differences(rows: Sequence[Row]) -> Grid:
    """Return every large difference of a counted row with its cause."""
    found = []
    for row in rows:
        if not row.counted:
            continue
        for column in row.large():
            found.append(
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
    return Grid(f"Differences of more than {LARGE:g} points", head, found, sections=2)


def _cause(row: Row, column: str) -> str:
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
