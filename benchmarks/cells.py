"""Cells of the paper's tables, each timed as a user runs it: one command in one process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.memory import PeakMemory
from benchmarks.results import GIGABYTE, Measurement, Requirement, Suite
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.environment import machine, versions
from ebbflow.runs.records import read_rounds

TOLERANCE = 1e-4  # largest allowed difference between the losses of the two engines
# Overrides that make an experiment small enough for the reference engine.
SHORT = ("--sessions", "3", "--rounds", "2", "--devices", "10")
_COMMAND = (sys.executable, "-c", "from ebbflow.cli import main; main()", "compare")


class TimedCommand(NamedTuple):
    """The arguments of an `ebbflow compare`, with limits on its time and memory."""

    name: str
    arguments: tuple[str, ...]
    max_seconds: float
    max_bytes: int | None = None


_PAPER = ("--preset", "authors-code", "--overlap", "0.0", "--alpha", "0.3", "--seeds", "100")
_MNIST = ("--dataset", "mnist", *_PAPER, "--methods", "warm_start,continuous,previous,average")
_NEWS = ("--dataset", "agnews", *_PAPER, "--methods", "warm_start,previous,average")

CELLS = (
    TimedCommand("MNIST, one algorithm, four starts", (*_MNIST, "--algorithm", "fedprox"), 80),
    TimedCommand(
        "MNIST, five algorithms, four starts",
        (*_MNIST, "--algorithm", "moon,fedprox,scaffold,scaffold-authors,fedacg"),
        480,
    ),
    TimedCommand(
        "AG News, 36 devices, three starts",
        (*_NEWS, "--devices", "36", "--algorithm", "fedprox"),
        900,
        3 * GIGABYTE,
    ),
    TimedCommand(
        "AG News, 100 devices, three starts",
        (*_NEWS, "--devices", "100", "--algorithm", "fedprox"),
        1500,
        3 * GIGABYTE,
    ),
)


def _run(arguments: Sequence[str], out: Path) -> Measurement:
    """Run `ebbflow compare` and return its seconds and peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [*_COMMAND, *arguments, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with PeakMemory(process.pid, interval=0.5) as peak:
            _, stderr = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    seconds = time.perf_counter() - start
    if process.returncode:
        lines = stderr.strip().splitlines() or [f"exit {process.returncode}"]
        raise EbbflowError(
            f"ebbflow compare {' '.join(arguments)}: {lines[-1].removeprefix('ebbflow: ')}"
        )
    return Measurement(name="", seconds=[seconds], memory=peak.bytes)


def engine_difference(arguments: Sequence[str], folder: Path) -> float:
    """Return the largest difference between the two engines' losses in a short run."""
    losses = []
    for kind in ("vectorised", "sequential"):
        out = folder / kind
        _run([*arguments, *SHORT, "--set", f"engine.kind={kind}"], out)
        losses.append([round_.loss for round_ in read_rounds(out)])
    fast, reference = losses
    return max(abs(a - b) for a, b in zip(fast, reference, strict=True))


def cells(
    repeats: int, peers: Path | None = None, commands: Sequence[TimedCommand] = CELLS
) -> Suite:
    """Time each command once, after a short version gave the same losses with both engines."""
    measurements, requirements = [], []
    for command in commands:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            folder = Path(name)
            difference = engine_difference(command.arguments, folder)
            if not difference <= TOLERANCE:
                raise EbbflowError(
                    f"{command.name}: the losses of the two engines differ by {difference:.1e}, "
                    f"more than {TOLERANCE:g}, so that nothing is timed"
                )
            note = f"`ebbflow compare {' '.join(command.arguments)}`"
            measured = _run(command.arguments, folder / "run").model_copy(
                update={"name": command.name, "difference": difference, "note": note}
            )
        measurements.append(measured)
        requirements.append(
            Requirement(
                what=command.name, value=measured.median, bound=command.max_seconds, unit="s"
            )
        )
        if command.max_bytes is not None and measured.memory:
            requirements.append(
                Requirement(
                    what=f"{command.name}, memory",
                    value=measured.memory / GIGABYTE,
                    bound=command.max_bytes / GIGABYTE,
                    unit="GB",
                )
            )
    return Suite(
        name="cells",
        title="cells of the paper's tables",
        measurements=measurements,
        requirements=requirements,
        notes=[
            "Each is one command in a process of its own, timed once from its first import to its "
            "last file. The difference is between the losses of the two engines in a short version."
        ],
        machine=machine(),
        versions=versions(),
    )
