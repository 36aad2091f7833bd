"""Cells of the paper's tables, each run as a user would run it: one command, one process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.memory import Peak
from benchmarks.results import GIGABYTE, Check, Row, Suite
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.environment import machine, versions
from ebbflow.runs.records import read_rounds

EQUAL = 1e-4  # largest difference between the losses that the two engines record
# The same experiment with both engines, small enough for the plain one.
SHORT = ("--sessions", "3", "--rounds", "2", "--devices", "10")
_COMMAND = (sys.executable, "-c", "from ebbflow.cli import main; main()", "compare")


class Cell(NamedTuple):
    """An experiment, and how long it and how large it may be."""

    name: str
    arguments: tuple[str, ...]
    seconds: float
    bytes: int | None = None


_PAPER = ("--preset", "authors-code", "--overlap", "0.0", "--alpha", "0.3", "--seeds", "100")
_MNIST = ("--dataset", "mnist", *_PAPER, "--methods", "warm_start,continuous,previous,average")
_NEWS = ("--dataset", "agnews", *_PAPER, "--methods", "warm_start,previous,average")

CELLS = (
    Cell("MNIST, one algorithm, four starts", (*_MNIST, "--algorithm", "fedprox"), 80),
    Cell(
        "MNIST, five algorithms, four starts",
        (*_MNIST, "--algorithm", "moon,fedprox,scaffold,scaffold-authors,fedacg"),
        480,
    ),
    Cell(
        "AG News, 36 devices, three starts",
        (*_NEWS, "--devices", "36", "--algorithm", "fedprox"),
        900,
        3 * GIGABYTE,
    ),
    Cell(
        "AG News, 100 devices, three starts",
        (*_NEWS, "--devices", "100", "--algorithm", "fedprox"),
        1500,
        3 * GIGABYTE,
    ),
)


def _run(arguments: Sequence[str], out: Path) -> Row:
    """Run `ebbflow compare` and return its seconds and peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [*_COMMAND, *arguments, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with Peak(process.pid, every=0.5) as peak:
            _, said = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    seconds = time.perf_counter() - start
    if process.returncode:
        last = said.strip().splitlines()
        raise EbbflowError(
            f"ebbflow compare {' '.join(arguments)}: "
            f"{last[-1].removeprefix('ebbflow: ') if last else f'exit {process.returncode}'}"
        )
    return Row(name="", seconds=[seconds], memory=peak.bytes)


def engines_apart(arguments: Sequence[str], folder: Path) -> float:
    """Return the largest difference between the losses of a short run with either engine."""
    losses = []
    for kind in ("vectorised", "sequential"):
        out = folder / kind
        _run([*arguments, *SHORT, "--set", f"engine.kind={kind}"], out)
        losses.append([round_.loss for round_ in read_rounds(out)])
    fast, plain = losses
    return max(abs(a - b) for a, b in zip(fast, plain, strict=True))


def cells(repeats: int, peers: Path | None = None, chosen: Sequence[Cell] = CELLS) -> Suite:
    """Run every cell once, after its short version has given the same with both engines."""
    rows, checks = [], []
    for cell in chosen:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            folder = Path(name)
            difference = engines_apart(cell.arguments, folder)
            if not difference <= EQUAL:
                raise EbbflowError(
                    f"{cell.name}: the engines' losses are {difference:.1e} apart: nothing is timed"
                )
            command = f"`ebbflow compare {' '.join(cell.arguments)}`"
            row = _run(cell.arguments, folder / "run").model_copy(
                update={"name": cell.name, "difference": difference, "note": command}
            )
        rows.append(row)
        checks.append(Check(what=cell.name, found=row.median, bound=cell.seconds, unit="s"))
        if cell.bytes is not None and row.memory:
            checks.append(
                Check(
                    what=f"{cell.name}, memory",
                    found=row.memory / GIGABYTE,
                    bound=cell.bytes / GIGABYTE,
                    unit="GB",
                )
            )
    return Suite(
        name="cells",
        title="of the paper's tables",
        rows=rows,
        checks=checks,
        notes=[
            "Each is one command in a process of its own, from its first import to its last file, "
            "measured once. The difference is between the losses of a short version with either "
            "engine."
        ],
        machine=machine(),
        versions=versions(),
    )
