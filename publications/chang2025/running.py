"""Runs cells as a sweep: claimed by lock, each in a process of its own, by several workers."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chang2025.cells import Cell
from chang2025.folders import RUNS
from chang2025.results import kept_capabilities, result_digest, write_result
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256
from ebbflow.core.processor import instructions
from ebbflow.runs.configuration import read_config
from ebbflow.runs.environment import other_instructions
from ebbflow.runs.records import CONFIG
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.crew import Crew
from ebbflow.sweeps.digests import digest
from ebbflow.sweeps.failures import Failures
from ebbflow.sweeps.jobs import Jobs, JobsReference, Stop
from ebbflow.sweeps.usage import usage

LOGS = "logs"


def is_done(cell: Cell, results: Path) -> bool:
    """Whether a cell has a result that was made with its settings of today."""
    kept = result_digest(results, cell.name)
    return kept is not None and kept == cell.digest


def run_cells(
    cells: Sequence[Cell],
    results: Path,
    runs: Path = RUNS,
    *,
    keep: bool = False,
    workers: int = 1,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Run the cells that have no result yet; return a sentence for each that went wrong.

    A cell that was stopped goes on from its last checkpoint.
    """
    open_cells = [cell for cell in cells if not is_done(cell, results)]
    if len(open_cells) < len(cells):
        say(f"{len(cells) - len(open_cells)} of {len(cells)} cells are done already")
    if not open_cells:
        return []
    others = kept_capabilities(results) - {capability()}
    if others:
        say(
            f"note: results in {results} were computed with {' and '.join(sorted(others))} "
            f"instructions, and here torch uses {capability()}: new results may differ from those "
            "by rounding"
        )
    progress = _Progress(open_cells, results, runs, say)
    for cell in open_cells:
        progress.failures.forget(cell.name)
    arguments = {
        "cells": [asdict(cell) for cell in open_cells],
        "results": str(results.absolute()),
        "runs": str(runs.absolute()),
        "keep": keep,
    }
    reference = JobsReference(f"{__name__}:paper_jobs", arguments)
    _work(reference, min(workers, len(open_cells)), runs / LOGS, progress.look)
    return progress.failed()


def _work(reference: JobsReference, workers: int, logs: Path, look: Callable[[], None]) -> None:
    """Let workers compute cells; what is stopped here stops there, too."""
    crew = Crew(reference, workers, logs)
    crew.work(look)
    if crew.stopped_by is not None:
        raise KeyboardInterrupt


class _Progress:
    """Says of every cell when it begins, when it is done, and why it is not."""

    def __init__(
        self, cells: Sequence[Cell], results: Path, runs: Path, say: Callable[[str], None]
    ) -> None:
        self.failures = Failures(runs)
        self._cells, self._results, self._say = cells, results, say
        self._claims = Claims(runs)
        self._begun: dict[str, float] = {}
        self._over: set[str] = set()

    def look(self) -> None:
        """Say what is new."""
        for cell in self._cells:
            name = cell.name
            if name in self._over:
                continue
            done, failure = is_done(cell, self._results), self.failures.read(name)
            if name not in self._begun and (done or failure or self._claims.is_held(name)):
                self._begun[name] = time.monotonic()
                number = len(self._begun)
                self._say(f"cell {number} of {len(self._cells)}: {name}")
            if done or failure:
                self._over.add(name)
            if done:
                took = time.monotonic() - self._begun[name]
                self._say(f"  {self._results / name}.csv, {took:.0f} s")
            elif failure:
                self._say(f"  {name} failed: {failure['sentence']}")

    def failed(self) -> list[str]:
        """Return a sentence for each cell that went wrong."""
        found = ((cell.name, self.failures.read(cell.name)) for cell in self._cells)
        return [f"{name}: {failure['sentence']}" for name, failure in found if failure]


class PaperJobs(Jobs):
    """Cells of the paper for workers: what is left of one is its result."""

    modules = ("ebbflow.experiment", "ebbflow.report.progress")

    def __init__(self, cells: Sequence[Cell], results: Path, runs: Path, keep: bool) -> None:
        self.folder = runs
        self._cells = {cell.name: cell for cell in cells}
        self._results, self._keep = results, keep

    def names(self) -> Sequence[str]:
        """Return the names of the cells."""
        return list(self._cells)

    def is_done(self, name: str) -> bool:
        """Whether a cell has its result."""
        return is_done(self._cells[name], self._results)

    def run_folder(self, name: str) -> Path:
        """Return the folder of a cell's run, which is removed when its result is there."""
        return self.folder / name

    def refresh(self) -> None:
        """There are no more cells than at first."""

    def compute(self, name: str, stop: Stop) -> None:
        """Run a cell and write its result."""
        compute(self._cells[name], self._results, self.folder, self._keep, stop)


def paper_jobs(
    cells: Sequence[Mapping[str, Any]], results: str, runs: str, keep: bool
) -> PaperJobs:
    """Return cells for a worker, from what another process wrote of them."""
    return PaperJobs([Cell(**cell) for cell in cells], Path(results), Path(runs), keep)


def capability() -> str:
    """Return the instruction set that torch computes with here, as in AVX2."""
    return instructions()["torch"]


def compute(cell: Cell, results: Path, runs: Path, keep: bool, stop: Stop = lambda: False) -> None:
    """Run a cell, or go on with it, and write its result."""
    # Torch is for the process that computes; the one that lists and compares does without.
    from ebbflow import experiment  # noqa: PLC0415
    from ebbflow.data import datasets  # noqa: PLC0415
    from ebbflow.report.progress import progress_display  # noqa: PLC0415

    began = time.monotonic()
    config, folder = cell.config, runs / cell.name
    data = datasets.load(
        config.dataset, limit_train=config.data.limit_train, limit_test=config.data.limit_test
    )
    if len(data.train) < cell.needed_samples:
        raise EbbflowError(
            f"{config.dataset} has {len(data.train):,} of {cell.needed_samples:,} training samples "
            "here: get the whole data set, or choose --scale small"
        )
    if cell.pretrained and config.model.weights is None:
        raise EbbflowError(
            "the paper's ResNets start from weights trained on ImageNet: give them by --weights, "
            "or choose --scale small"
        )
    resumed = (folder / CONFIG).is_file() and digest(read_config(folder)) == cell.digest
    if resumed and (warning := other_instructions(folder)):
        print(f"warning: {warning}", file=sys.stderr)
    with closing(progress_display(config)) as display:
        if resumed:
            records = experiment.resume(folder, dataset=data, callbacks=[display], stop=stop)
        else:
            shutil.rmtree(folder, ignore_errors=True)  # a stopped run with other settings
            records = experiment.run(config, folder, dataset=data, callbacks=[display], stop=stop)
    measured: dict[str, Any] = {
        "capability": capability(),
        "resumed": resumed,
        "seconds": round(time.monotonic() - began, 1),
        **usage(),
    }
    if config.model.weights is not None:
        measured["weights"] = sha256(Path(config.model.weights).read_bytes())
    if cell.theorem:
        from ebbflow.analysis.run_bounds import examine  # noqa: PLC0415

        with closing(progress_display(config)) as display:
            measured["bound"] = examine(folder, callbacks=[display]).as_json()
    write_result(cell, records, results, measured)
    if not keep:
        shutil.rmtree(folder)
