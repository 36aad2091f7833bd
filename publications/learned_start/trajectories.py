"""Trajectories: each start on its own history, through a whole run, as a user would have it.

Cells of the paper are its own, with the learned start added. Its other starts have kept results for
the seeds that the paper's tables use, so that only the learned one is run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from chang2025.cells import Cell
from chang2025.folders import RESULTS as PAPER_RESULTS
from chang2025.results import Result, read_result
from chang2025.running import is_done
from chang2025.study_cells import SMALL_MODEL_DATASETS, accuracy_cells, first_ten_cells
from ebbflow.config.paper_rows import SEEDS as PAPER_SEEDS
from ebbflow.core.errors import EbbflowError
from learned_start.keeping import RESULTS
from learned_start.rules import LEARNED

TRAJECTORIES = RESULTS / "trajectories"
KINDS = ("two_shard", "half", "partial_overlap", "distinct")
WINDOW = 10
MARKS = (1, 2, 5, 10, 20)
"""The rounds at which leads are shown, beside the last one."""


def _with_learned(cell: Cell) -> Cell:
    others = () if cell.seed in PAPER_SEEDS else tuple(cell.values["methods"])
    return cell.with_settings({"methods": [LEARNED, *others]})


def _paper(seeds: Sequence[int]) -> Iterator[Cell]:
    for dataset in SMALL_MODEL_DATASETS:
        yield from map(_with_learned, accuracy_cells(dataset, "full", seeds))


def _appendix(seeds: Sequence[int]) -> Iterator[Cell]:
    for cell in first_ten_cells(KINDS, "full", seeds):
        if cell.values["dataset"] in SMALL_MODEL_DATASETS and "-mlp-" not in cell.name:
            yield _with_learned(cell)


CHURN: dict[str, Any] = {
    "schedule.kind": "random",
    "partition.devices": 20,
    "pilot.carry_over": True,
    "algorithm": ["fedavg"],
    "methods": [LEARNED, "warm_start", "previous", "average"],
}
"""Twenty devices present on average; they stay, leave and come back at random."""
PLAIN = {"methods": ["previous"], "lr.floor": 1.0, "boundary.state": "keep"}
"""Plain federated learning with whoever is there: nothing begins anew with a session."""


def _churn(seeds: Sequence[int]) -> Iterator[Cell]:
    lengths = {"30": (30, 5), "200": (200, 2)}
    splits = {"all": {}, "split": {"partition.overlap": 0.0}}
    for seed, (many, (sessions, rounds)), (split, labels) in product(
        seeds, lengths.items(), splits.items()
    ):
        for dataset in ("digits", "mnist") if many == "30" else ("digits",):
            values = {
                **CHURN,
                **labels,
                "dataset": dataset,
                "seeds": [seed],
                "sessions": sessions,
                "rounds": rounds,
            }
            name = f"churn-{dataset}-{many}-{split}"
            yield Cell(f"{name}-s{seed}", values)
            yield Cell(f"{name}-plain-s{seed}", {**values, **PLAIN})


FAMILIES: dict[str, Callable[[Sequence[int]], Iterator[Cell]]] = {
    "paper": _paper,
    "appendix": _appendix,
    "churn": _churn,
}


# --- rows ----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One setting, algorithm and transition: each start's curve, the mean over seeds."""

    setting: str
    algorithm: str
    session: int
    curves: dict[str, tuple[float, ...]]

    def window(self, method: str, rounds: int = WINDOW) -> float:
        """Return the mean accuracy over the first rounds."""
        return fmean(self.curves[method][:rounds])

    @property
    def first(self) -> str:
        """The start with the highest mean accuracy over the window."""
        return max(self.curves, key=self.window)

    def lead(self, method: str, over: str, mark: int | None) -> float:
        """Return the lead after a round, or after the last one."""
        at = -1 if mark is None else min(mark, len(self.curves[method])) - 1
        return self.curves[method][at] - self.curves[over][at]


def rows_of(cells: Sequence[Cell], results: Path = TRAJECTORIES) -> list[Row]:
    """Return the rows of all cells that are done, seeds averaged."""
    curves: dict[tuple[str, str, int], dict[str, list[Sequence[float]]]] = {}
    for cell in cells:
        if not is_done(cell, results):
            continue
        for result in _with_kept(read_result(results, cell.name)):
            for key, curve in result.curves.items():
                if key.session > result.pilot + 2:
                    where = cell.family, key.algorithm, key.session
                    curves.setdefault(where, {}).setdefault(key.method, []).append(curve)
    return [
        Row(*where, {method: _mean(many) for method, many in methods.items()})
        for where, methods in curves.items()
    ]


def _with_kept(result: Result) -> list[Result]:
    """Return a result, and the paper's own result of the same cell where that holds the others."""
    if result.seed not in PAPER_SEEDS or any(key.method != LEARNED for key in result.curves):
        return [result]
    others = read_result(PAPER_RESULTS, result.name)
    if not _same_settings(others.facts["config"], result.facts["config"]):
        raise EbbflowError(
            f"the kept results {result.name} of chang2025 and of learned_start differ in their "
            "settings: run one of the cells again"
        )
    return [result, others]


def _same_settings(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether results have the same settings but for their methods.

    A section that only one of them knows was added in between, and changes nothing by itself.
    """
    common = (one.keys() & other.keys()) - {"methods", "parameters"}
    return all(one[key] == other[key] for key in common)


def _mean(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(fmean(values) for values in zip(*curves, strict=True))


class ChurnRow(NamedTuple):
    """A start under random churn: mean accuracies from session 4 on, and over the last five."""

    setting: str
    method: str
    mean: float
    last: float
    seeds: int


def churn_rows(cells: Sequence[Cell], results: Path = TRAJECTORIES) -> list[ChurnRow]:
    """Return a row for every setting and start; plain federated learning is a start called so."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for cell in cells:
        if not is_done(cell, results):
            continue
        setting = cell.family.removesuffix("-plain")
        sessions: dict[str, dict[int, float]] = {}
        for key, curve in read_result(results, cell.name).curves.items():
            method = "plain" if setting != cell.family else key.method
            sessions.setdefault(method, {})[key.session] = fmean(curve)
        for method, means in sessions.items():
            later = [means[session] for session in sorted(means) if session > 3]
            found.setdefault((setting, method), []).append((fmean(later), fmean(later[-5:])))
    return [
        ChurnRow(*where, fmean(m for m, _ in both), fmean(last for _, last in both), len(both))
        for where, both in sorted(found.items(), key=lambda item: item[0][0])
    ]
