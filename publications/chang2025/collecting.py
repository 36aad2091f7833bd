"""Kept results, grouped into families of cells that differ only in the seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chang2025.cells import Cell
from chang2025.results import CurveKey, Result, read_result
from chang2025.running import is_done
from chang2025.studies import cells_of
from chang2025.study_cells import SCALES, Scale
from chang2025.windows import Window
from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.config.paper_rows import KINDS, SEEDS
from ebbflow.config.resolved import Config


@dataclass(frozen=True)
class Family:
    """Cells of one setting: ``cell`` is one of them, ``results`` are the kept ones, by seed."""

    cell: Cell
    scale: Scale
    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        """The cells' names without the seed."""
        return self.cell.family

    @property
    def config(self) -> Config:
        """The configuration, but for the seed."""
        return self.cell.config

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have results."""
        return tuple(result.seed for result in self.results)

    @property
    def setting(self) -> str:
        """The overlap and alpha of a main table, or the labels of the appendix's, as written."""
        part = self.config.partition
        if part.kind != "dirichlet":
            return KINDS[part.kind]
        return f"overlap {part.overlap}, alpha {part.alpha}"

    def session(self, transition: int) -> int:
        """Return the session of the k-th transition."""
        return self.config.pilot.sessions + 2 + transition

    def windows(self, algorithm: str, method: str, transition: int, window: Window) -> list[float]:
        """Return the window accuracies, seed by seed; empty where there are none."""
        lane = CurveKey(algorithm, method, self.session(transition))
        return [result.accuracy(lane, window) for result in self.results if lane in result.curves]


def known_seeds(results: Path) -> tuple[int, ...]:
    """Return the seeds of the results in a folder, and the paper's."""
    names = (re.search(r"-s(\d+)$", path.stem) for path in results.glob("*-s*.json"))
    return tuple(sorted({int(match[1]) for match in names if match} | set(SEEDS)))


def families(
    name: str, results: Path, scales: Sequence[Scale] = SCALES, *, missing: bool = False
) -> list[Family]:
    """Return the families of a study that have results; with ``missing`` the others, too.

    A result that was made with other settings than today's is not one.
    """
    seeds = known_seeds(results)
    by_family: dict[str, tuple[Scale, list[Cell]]] = {}
    for scale in scales:
        for cell in cells_of(name, scale, seeds):
            by_family.setdefault(cell.family, (scale, []))[1].append(cell)
    each = [
        Family(
            cells[0],
            scale,
            tuple(read_result(results, cell.name) for cell in cells if is_done(cell, results)),
        )
        for scale, cells in by_family.values()
    ]
    return [family for family in each if family.results or missing]


def largest_scale(candidates: Sequence[Family]) -> list[Family]:
    """Return the families of the largest scale that any of them has."""
    for scale in SCALES:
        own = [family for family in candidates if family.scale == scale]
        if own:
            return own
    return []


def check_of(family: Family) -> str:
    """Return what makes a family a check beside its table, or nothing if it is the table's own.

    On the small scale SVHN has one with another precision, AG News with another local work.
    """
    config = family.config
    if family.scale == "small" and config.dataset == "svhn" and config.precision == "fp32":
        return "fp32"
    if family.scale == "small" and config.dataset == "agnews" and config.partition.devices == 100:
        return "100 devices"
    return ""


def table_families(dataset: str, results: Path) -> list[Family]:
    """Return the families of a data set's accuracy table, without the checks beside it."""
    everyone = largest_scale(families(f"{dataset}-accuracy", results))
    return [family for family in everyone if not check_of(family)]


def mean_text(values: Sequence[float]) -> str:
    """Return mean and deviation over seeds as text.

    >>> mean_text([92.0, 93.0]), mean_text([92.0]), mean_text([])
    ('92.50 ± 0.71', '92.00', '')
    """
    if not values:
        return ""
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" if len(values) < 2 else f"{mean:.2f} ± {deviation:.2f}"
