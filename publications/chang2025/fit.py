"""Which window, and which of the disputed readings: fitted on two MNIST cells, and nowhere else.

The paper says "initial rounds" in its main text and ten in its appendix, and whether its windows
begin with a session or one entry early is open (`chang2025.windows`). Its text and its
authors' code differ in the step rule, the distance, where session P+1 starts from, and who teaches
Continuous there. All of them are tried on the cells with overlap 0.0 and 0.2 at alpha 0.3 under one
seed, with three algorithms. What fits best there is applied unchanged to everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from chang2025.cells import METHODS, Cell, DataSplit, make_cell
from chang2025.reference import accuracies
from chang2025.results import CurveKey, Result, read_result
from chang2025.studies import accuracy_file
from chang2025.study_cells import EXTRA_ALGORITHMS, MAIN_ALGORITHMS
from chang2025.windows import Window, parse
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.runs.records import read_json

DATASET, OVERLAPS, ALPHA, SEED = "mnist", (0.0, 0.2), 0.3, 100
ALGORITHMS = ("fedprox", "fedacg", "scaffold-authors")
LENGTHS = range(1, 16)
WINDOWS = tuple(Window(length, early) for early in (False, True) for length in LENGTHS)
FILE = "fit.json"


@dataclass(frozen=True)
class Reading:
    """One way to read the paper; the defaults are the authors' code."""

    rule: str = "one_pass"
    carry_over: bool = False
    distance: str = "per_tensor"
    first: str = "uniform"

    @property
    def marks(self) -> tuple[str, ...]:
        """What its cells are called by."""
        shown = {
            "each_step": self.rule == "each_step",
            "carried": self.carry_over,
            "raw": self.distance == "raw",
            "untaught": self.first == "none",
        }
        return tuple(mark for mark, is_so in shown.items() if is_so)

    @property
    def name(self) -> str:
        """How it is written.

        >>> Reading().name, Reading(distance="raw", carry_over=True).name
        ('authors-code', 'carried, raw')
        """
        return ", ".join(self.marks) or "authors-code"

    @property
    def settings(self) -> dict[str, Any]:
        """What it sets."""
        return {
            "local.rule": self.rule,
            "pilot.carry_over": self.carry_over,
            "parameters.warm_start.distance": self.distance,
            "parameters.continuous.first": self.first,
        }


READINGS = tuple(
    Reading(rule, carry_over, distance, first)
    for rule, carry_over, distance, first in product(
        ("one_pass", "each_step"), (False, True), ("per_tensor", "raw"), ("uniform", "none")
    )
    # Where the pilot's model is carried over it teaches, whoever does so after a fresh start.
    if not (carry_over and first == "none")
)


def _sources(reading: Reading, overlap: float) -> dict[str, Cell]:
    """Return the cell that each method's curves come from.

    The distance matters to the warm start alone, and the first teacher to Continuous alone: neither
    needs the others to be run again.
    """
    base = Reading(reading.rule, reading.carry_over)
    sources = {method: _cell(base, overlap) for method in METHODS}
    for method, changed in (
        ("warm_start", Reading(reading.rule, reading.carry_over, reading.distance)),
        ("continuous", Reading(reading.rule, reading.carry_over, first=reading.first)),
    ):
        if changed != base:
            sources[method] = _cell(changed, overlap, method)
    return sources


@cache
def _cell(reading: Reading, overlap: float, *methods: str) -> Cell:
    split = DataSplit(DATASET, overlap=overlap, alpha=ALPHA)
    if not reading.marks:
        return make_cell(split, (*MAIN_ALGORITHMS, *EXTRA_ALGORITHMS), SEED)
    return make_cell(
        split,
        ALGORITHMS,
        SEED,
        methods=methods or METHODS,
        variant=reading.settings,
        marks=reading.marks,
    )


def fit_cells() -> list[Cell]:
    """Return every cell that the fit needs, each once."""
    cells = {
        cell.name: cell
        for reading, overlap in product(READINGS, OVERLAPS)
        for cell in _sources(reading, overlap).values()
    }
    return list(cells.values())


def printed_cell(overlap: float = 0.0) -> Cell:
    """Return the cell with the distance as it is printed and all else as in the authors' code."""
    return _sources(Reading(distance="raw"), overlap)["warm_start"]


# --- the fit -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """What was chosen, and the mean absolute differences (points) that led to it.

    ``errors`` are by reading and window, ``methods`` those of the chosen reading by method and
    window.
    """

    window: Window
    reading: str
    errors: Mapping[str, Mapping[Window, float]]
    methods: Mapping[str, Mapping[Window, float]]


def fit(results: Path) -> Fit:
    """Return the window and the reading with the least mean absolute difference."""
    read: dict[str, Result] = {}
    errors: dict[str, dict[Window, float]] = {}
    by_method: dict[str, dict[str, dict[Window, float]]] = {}
    for reading in READINGS:
        pairs = {method: list(_pairs(results, read, reading, method)) for method in METHODS}
        differences = {
            method: {
                window: [
                    abs(result.accuracy(key, window) - paper)
                    for result, key, paper in pairs[method]
                ]
                for window in WINDOWS
            }
            for method in METHODS
        }
        errors[reading.name] = {
            window: fmean(d for method in METHODS for d in differences[method][window])
            for window in WINDOWS
        }
        by_method[reading.name] = {
            method: {window: fmean(differences[method][window]) for window in WINDOWS}
            for method in METHODS
        }
    best, window = min(product(errors, WINDOWS), key=lambda choice: errors[choice[0]][choice[1]])
    return Fit(window, best, errors, by_method[best])


def _pairs(
    results: Path, read: dict[str, Result], reading: Reading, method: str
) -> Iterator[tuple[Result, CurveKey, float]]:
    """Yield our result, the key of its curve and the paper's accuracy for every fitted row."""
    for overlap in OVERLAPS:
        name = _sources(reading, overlap)[method].name
        if name not in read:
            read[name] = read_result(results, name)
        result = read[name]
        for row in accuracies(accuracy_file(DATASET)):
            setting = row.dataset, row.overlap, row.alpha
            if setting != (DATASET, overlap, ALPHA) or row.method != method:
                continue
            if row.algorithm in ALGORITHMS:
                key = CurveKey(row.algorithm, method, result.pilot + 2 + row.transition)
                yield result, key, row.accuracy


def write_fit(fitted: Fit, results: Path) -> Path:
    """Write what was chosen and the table that led to it."""
    path = results / FILE

    def rounded(errors: Mapping[str, Mapping[Window, float]]) -> dict[str, dict[str, float]]:
        return {
            name: {w.mark: round(error, 6) for w, error in by_window.items()}
            for name, by_window in errors.items()
        }

    content = {
        "window": fitted.window.mark,
        "reading": fitted.reading,
        "cells": [_cell(Reading(), overlap).name for overlap in OVERLAPS],
        "algorithms": list(ALGORITHMS),
        "errors": rounded(fitted.errors),
        "methods": rounded(fitted.methods),
    }
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    return path


def read_fit(results: Path) -> Fit:
    """Return what was fitted before."""
    path = results / FILE
    if not path.is_file():
        raise EbbflowError(
            f"{path} does not say which window to read: run `python -m chang2025 fit`, or give "
            "--window"
        )
    content = read_json(path)

    def by_window(errors: Mapping[str, Mapping[str, float]]) -> dict[str, dict[Window, float]]:
        return {name: {parse(w): e for w, e in each.items()} for name, each in errors.items()}

    return Fit(
        parse(content["window"]),
        str(content["reading"]),
        by_window(content["errors"]),
        by_window(content["methods"]),
    )
