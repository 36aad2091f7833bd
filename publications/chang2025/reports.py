"""The report of every table, by its id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chang2025 import ablations, comparing, resource_tables, time_to_accuracy
from chang2025.fit import read_fit
from chang2025.rendering import Report
from chang2025.rows import ComparedRow, first_ten_rows
from chang2025.studies import APPENDIX_STUDIES, STUDIES, study
from chang2025.windows import Window
from ebbflow.core.errors import EbbflowError

_PLAIN: dict[str, Callable[[Path], Report]] = {
    "resources-100": lambda results: resource_tables.resources("resources-100", results),
    "resources-20": lambda results: resource_tables.resources("resources-20", results),
    "simulation-parameters": lambda results: resource_tables.simulation_parameters(),
    "cost-analysis": resource_tables.cost_analysis,
    "bound": resource_tables.bound,
    time_to_accuracy.ID: time_to_accuracy.report,
}
FIGURES = tuple(
    name
    for name in STUDIES
    if name.endswith("-curves") or name in ("bandwidth", "system-model", "algorithm-illustration")
)
"""What is drawn instead of compared."""


def appendix_window(results: Path) -> Window:
    """Return the ten rounds that the appendix speaks of, counted as was fitted."""
    return Window(comparing.FIRST_TEN, read_fit(results).window.early)


def appendix_rows(results: Path) -> list[ComparedRow]:
    """Return the rows of the appendix's tables that were run in full."""
    window = appendix_window(results)
    rows = [row for name in APPENDIX_STUDIES for row in first_ten_rows(name, results, window)]
    return [row for row in rows if row.family.scale == "full"]


def report(name: str, results: Path, window: Window | None = None) -> Report:
    """Return a table beside the paper's; the window is the fitted one unless another is given."""
    study(name)
    if name in FIGURES:
        raise EbbflowError(f"{name} is a figure: draw it by `python -m chang2025 figure {name}`")
    if name in _PLAIN:
        return _PLAIN[name](results)
    if name.startswith("first10"):
        return comparing.comparison(name, results, window or appendix_window(results))
    fitted = read_fit(results).window if window is None else window
    if name in ablations.ABLATIONS:
        return ablations.ablation(name, results, fitted)
    return comparing.comparison(name, results, fitted)
