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
from benchmarks.timing import ratio
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.environment import machine, versions
from ebbflow.runs.records import read_rounds

REPEATS = 5  # at most: a cell takes long
TOLERANCE = 1e-4  # largest allowed difference between the losses of the two engines
# Overrides that make an experiment small enough for the reference engine.
SHORT = ("--sessions", "3", "--rounds", "2", "--devices", "10")
_COMMAND = "from ebbflow.cli import main; main()"
# As cells of perceptrons were computed before there were closed forms: in mapped blocks.
_MAPPED = (
    "import ebbflow.engines.vectorised as engine; "
    f"engine.why_not_dense = lambda model, examples: 'it is switched off'; {_COMMAND}"
)


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


PERCEPTRON = (
    *("--preset", "fmnist-distinct-fedavg", "--preset", "authors-code", "--seeds", "100"),
    *("--set", "model.kind=mlp", "--sessions", "3", "--rounds", "25"),
    *("--algorithm", "fedavg,fedprox,moon,scaffold-authors,scaffold"),
)
"""The cell of the appendix with perceptrons on Fashion-MNIST, with fewer and shorter sessions."""
TWICE = 2.0


def _run(arguments: Sequence[str], out: Path, command: str = _COMMAND) -> Measurement:
    """Run `ebbflow compare` and return its seconds and peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", command, "compare", *arguments, "--out", str(out)],
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
    return _difference(
        *(
            _losses_of([*arguments, *SHORT, "--set", f"engine.kind={kind}"], folder / kind)
            for kind in ("vectorised", "sequential")
        )
    )


def _losses_of(arguments: Sequence[str], out: Path, command: str = _COMMAND) -> list[float]:
    """Run `ebbflow compare` and return the losses of all rounds."""
    _run(arguments, out, command)
    return [each.loss for each in read_rounds(out)]


def _difference(losses: Sequence[float], others: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(losses, others, strict=True))


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


def perceptrons(
    repeats: int, peers: Path | None = None, arguments: Sequence[str] = PERCEPTRON
) -> Suite:
    """Time a cell with perceptrons in turns with what it took before there were closed forms."""
    ways = {"closed forms": _COMMAND, "mapped blocks": _MAPPED}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        difference = _difference(
            *(_losses_of([*arguments, *SHORT], Path(folder, name), ways[name]) for name in ways)
        )
    if not difference <= TOLERANCE:
        raise EbbflowError(
            f"perceptrons: the losses of the two ways differ by {difference:.1e}, more than "
            f"{TOLERANCE:g}, so that nothing is timed"
        )
    runs: dict[str, list[Measurement]] = {name: [] for name in ways}
    for _ in range(min(repeats, REPEATS)):
        for name, command in ways.items():
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                runs[name].append(_run(arguments, Path(folder, "run"), command))
    measurements = [
        Measurement(
            name=name,
            seconds=[second for each in runs[name] for second in each.seconds],
            difference=difference if name == "closed forms" else None,
            memory=max(each.memory or 0 for each in runs[name]),
        )
        for name in ways
    ]
    closed, mapped = (each.seconds for each in measurements)
    return Suite(
        name="perceptrons",
        title="a cell with perceptrons, as it is and as it was",
        measurements=measurements,
        requirements=[
            Requirement(
                what="speed of a whole cell beside mapped blocks",
                value=ratio(mapped, closed),
                bound=TWICE,
                at_least=True,
            )
        ],
        notes=[
            f"`ebbflow compare {' '.join(arguments)}`, each time in a process of its own, from its "
            "first import to its last file, in turns. Mapped blocks are how such cells were "
            "computed before. The difference is between the losses of a short version: over "
            "hundreds of rounds SCAFFOLD at its published rate amplifies the last digit."
        ],
        machine=machine(),
        versions=versions(),
    )
