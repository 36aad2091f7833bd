"""Runs cells, each in a process of its own, so that its time and memory can be measured."""

from __future__ import annotations

import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from chang2025.cells import Cell
from chang2025.folders import RUNS
from chang2025.results import kept_capabilities, result_digest, write_result
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256
from ebbflow.core.malloc import use_one_arena
from ebbflow.core.processor import instructions
from ebbflow.runs.configuration import read_config
from ebbflow.runs.environment import other_instructions
from ebbflow.runs.records import CONFIG
from ebbflow.sweeps.digests import digest


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
    say: Callable[[str], None] = print,
) -> list[str]:
    """Run the cells that have no result yet; return a sentence for each that went wrong.

    A cell that was stopped goes on from its last checkpoint.
    """
    failures = []
    open_cells = [cell for cell in cells if not is_done(cell, results)]
    if len(open_cells) < len(cells):
        say(f"{len(cells) - len(open_cells)} of {len(cells)} cells are done already")
    others = kept_capabilities(results) - {capability()} if open_cells else set()
    if others:
        say(
            f"note: results in {results} were computed with {' and '.join(sorted(others))} "
            f"instructions, and here torch uses {capability()}: new results may differ from those "
            "by rounding"
        )
    for number, cell in enumerate(open_cells, start=1):
        say(f"cell {number} of {len(open_cells)}: {cell.name}")
        began = time.monotonic()
        try:
            _in_own_process(cell, results, runs, keep)
        except EbbflowError as error:  # the others are run all the same
            failures.append(f"{cell.name}: {error}")
            say(f"  failed: {error}")
        else:
            say(f"  {results / cell.name}.csv, {time.monotonic() - began:.0f} s")
    return failures


def capability() -> str:
    """Return the instruction set that torch computes with here, as in AVX2."""
    return instructions()["torch"]


def _in_own_process(cell: Cell, results: Path, runs: Path, keep: bool) -> None:
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(there, cell, results, runs, keep))
    with _stopped_by_terminate():
        process.start()
        there.close()
        said: str | None = None
        try:
            said = here.recv()
        except EOFError:
            pass
        except BaseException:
            # What is stopped here stops there, too: the cell is left at its last checkpoint.
            process.terminate()
            raise
        finally:
            process.join()
            here.close()
    if said is None:
        raise EbbflowError(f"its process ended with code {process.exitcode}: run it again")
    if said:
        raise EbbflowError(said)


def _report(there: Connection, cell: Cell, results: Path, runs: Path, keep: bool) -> None:
    """Run a cell and send what went wrong, or nothing."""
    said = ""
    use_one_arena()
    try:
        compute(cell, results, runs, keep)
    except EbbflowError as error:
        said = str(error)
    except KeyboardInterrupt:  # the other process tells the user
        sys.exit(130)
    there.send(said)


@contextmanager
def _stopped_by_terminate() -> Iterator[None]:
    """Treat a signal to terminate as the user's own interruption."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no other thread may set handlers
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def compute(cell: Cell, results: Path, runs: Path, keep: bool) -> None:
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
            records = experiment.resume(folder, dataset=data, callbacks=[display])
        else:
            shutil.rmtree(folder, ignore_errors=True)  # a stopped run with other settings
            records = experiment.run(config, folder, dataset=data, callbacks=[display])
    measured: dict[str, Any] = {
        "capability": capability(),
        "resumed": resumed,
        "seconds": round(time.monotonic() - began, 1),
        **_usage(),
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


def _usage() -> dict[str, float | int]:
    """Return what this process has taken: seconds of all its threads, and its largest memory."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_seconds": round(spent.ru_utime + spent.ru_stime, 1), "memory": _peak(spent)}


def _peak(spent: resource.struct_rusage) -> int:
    # The kernel's own figure survives exec, and so may be the parent's; this one does not.
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # there is no /proc on this system
        lines = ""
    for line in lines.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return spent.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
