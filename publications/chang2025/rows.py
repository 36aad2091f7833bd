"""Rows of ours beside the paper's: of the accuracy tables, and of the appendix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from chang2025 import reference
from chang2025.cells import METHODS
from chang2025.collecting import Family, check_of, families, largest_scale
from chang2025.results import CurveKey
from chang2025.studies import accuracy_file, study
from chang2025.study_cells import APPENDIX_ALGORITHMS, MAIN_ALGORITHMS
from chang2025.windows import Window
from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.config.paper_rows import KINDS

LARGE = 2.5
"""Points beyond which a difference is listed, with a cause or as unexplained."""
TRANSITIONS = (2, 4)
"""The transitions of the paper's accuracy tables."""
APPENDIX_TRANSITIONS = (1, 2, 3)


class PaperValue(NamedTuple):
    """An accuracy of the paper; ``std`` is nan where it gives none."""

    mean: float
    std: float = math.nan


@dataclass(frozen=True)
class ComparedRow:
    """One row of a table: ours and theirs by method, or by variant in an ablation.

    ``counted`` rows are those of algorithms that the paper really ran, in their own set-up.
    """

    study: str
    family: Family
    algorithm: str
    transition: int
    ours: Mapping[str, Sequence[float]]
    theirs: Mapping[str, PaperValue]
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
        key = CurveKey(self.algorithm, column, self.family.session(self.transition))
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


class RowKey(NamedTuple):
    """Identifies a row of an accuracy table."""

    overlap: float
    alpha: float
    algorithm: str
    transition: int


def published_rows(dataset: str) -> dict[RowKey, dict[str, PaperValue]]:
    """Return the paper's accuracy table of a data set: by row, by method."""
    rows: dict[RowKey, dict[str, PaperValue]] = {}
    for row in reference.accuracies(accuracy_file(dataset)):
        if row.dataset == dataset:
            where = RowKey(row.overlap, row.alpha, row.algorithm, row.transition)
            rows.setdefault(where, {})[row.method] = PaperValue(row.accuracy, row.std)
    return rows


def accuracy_rows(dataset: str, results: Path, window: Window) -> list[ComparedRow]:
    """Return the rows of an accuracy table for which there are results."""
    name = f"{dataset}-accuracy"
    paper = published_rows(dataset)
    rows = []
    for family in largest_scale(families(name, results)):
        part = family.config.partition
        overlap, alpha = part.overlap or 0.0, part.alpha
        check = check_of(family)
        for algorithm, k in product(family.config.algorithm, TRANSITIONS):
            ours = _ours(family, algorithm, k, window)
            if ours:
                theirs = paper.get(RowKey(overlap, alpha, _as_run(algorithm), k), {})
                counted = algorithm in MAIN_ALGORITHMS and not check
                rows.append(ComparedRow(name, family, algorithm, k, ours, theirs, counted, check))
    return rows


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


def first_ten_rows(name: str, results: Path, window: Window) -> list[ComparedRow]:
    """Return the rows of a table of the appendix for which there are results."""
    kinds = {title: kind for kind, title in KINDS.items()}
    paper: dict[tuple[str, str, str, int], dict[str, PaperValue]] = {}
    for row in reference.table(study(name).reference or ""):
        dataset = reference.NAMES[row["dataset_model"].partition(" (")[0]]
        key = (
            dataset,
            kinds[row["label_distribution"]],
            reference.ALGORITHMS[row["algorithm"]],
            int(row["transition"]),
        )
        method = reference.method_name(row["method"])
        paper.setdefault(key, {})[method] = PaperValue(float(row["accuracy"]))
    rows = []
    for family in largest_scale(families(name, results)):
        config = family.config
        for algorithm, k in product(config.algorithm, APPENDIX_TRANSITIONS):
            ours = _ours(family, algorithm, k, window)
            if ours:
                key = config.dataset, config.partition.kind, _as_run(algorithm), k
                theirs = paper.get(key, {})
                counted = (
                    algorithm in APPENDIX_ALGORITHMS and bool(theirs) and family.scale == "full"
                )
                rows.append(ComparedRow(name, family, algorithm, k, ours, theirs, counted))
    return rows
