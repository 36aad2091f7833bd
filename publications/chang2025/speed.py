"""How long cells take: a table of measured seconds per device-step and lane, and estimates from it.

A lane is an algorithm with a start that is trained by itself; what lanes share is counted once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from chang2025.cells import TRAINING_SAMPLES, Cell, DataSplit, make_cell
from ebbflow.config.resolve import LABEL_KINDS
from ebbflow.config.resolved import Config
from ebbflow.core.files import write_atomically
from ebbflow.runs.environment import machine, versions
from ebbflow.simulation.callbacks import Callback, RoundFinished, SessionStarted

FILE = "speed.json"
ALIKE = {"fmnist": "mnist", "cifar100": "cifar10"}
"""Data sets whose models take as long as another's."""


class TimedRun(NamedTuple):
    """A short run to be timed: what it stands for, and how far it is cut."""

    dataset: str
    model: str
    precision: str
    devices: int
    rounds: int
    train: int | None = None


TIMED_RUNS = (
    TimedRun("mnist", "softmax", "fp32", 100, 12),
    TimedRun("mnist", "mlp", "fp32", 20, 8),
    TimedRun("agnews", "embedding", "fp32", 36, 4),
    TimedRun("svhn", "cnn", "bf16", 4, 4, 2_000),
    TimedRun("svhn", "cnn", "fp32", 4, 4, 2_000),
    TimedRun("cifar10", "resnet18", "fp32", 2, 3, 512),
    TimedRun("tinyimagenet", "resnet34", "fp32", 2, 3, 512),
)


def key(dataset: str, model: str, precision: str) -> str:
    """Return the name of a speed.

    >>> key("fmnist", "softmax", "fp32")
    'mnist/softmax/fp32'
    """
    return "/".join((ALIKE.get(dataset, dataset), model, precision))


def lanes(config: Config, session: int) -> int:
    """Return how many lanes a session trains: methods that cannot differ yet share theirs."""
    methods = len(config.methods)
    if session <= config.pilot.sessions:
        methods = 1
    elif session <= config.pilot.sessions + 2:
        apart = "continuous" in config.methods and methods > 1
        methods = 2 if apart else 1
    return methods * len(config.algorithm)


def device_steps(config: Config, train: int) -> int:
    """Return the local steps that all devices of a session make in a round.

    Samples are taken to be spread evenly, half of the labels being there at a time.
    """
    devices = config.partition.devices or 1
    if config.partition.kind in LABEL_KINDS:
        devices = max(1, devices // 2)
        held = train / 2 / devices
    else:
        held = train / (2 - (config.partition.overlap or 0.0)) / devices
    steps = config.local.steps if isinstance(config.local.steps, int) else config.local.steps[1]
    if config.local.rule == "one_pass":
        steps = min(steps, math.ceil(held / (config.local.batch or 1)))
    return devices * steps


def work(cell: Cell) -> int:
    """Return the device-steps of all lanes of a cell."""
    config = cell.config
    train = config.data.limit_train or TRAINING_SAMPLES[config.dataset]
    each = device_steps(config, train)
    pilot = config.pilot.rounds or 0
    return sum(
        each * lanes(config, s) * (pilot if s <= config.pilot.sessions else config.rounds or 0)
        for s in range(1, config.sessions + 1)
    )


def seconds(cell: Cell, speeds: Mapping[str, float] | None = None) -> float:
    """Return how long a cell should take here; nan where nothing like it was measured."""
    config = cell.config
    table = measured_speeds() if speeds is None else speeds
    name = key(config.dataset, config.model.kind or "", config.precision)
    twice = 2 if cell.theorem else 1  # it is run once more to be measured
    return twice * work(cell) * table.get(name, math.nan)


def measured_speeds() -> dict[str, float]:
    """Return the packaged table: seconds per device-step and lane."""
    file = resources.files("chang2025") / FILE
    speeds: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))["seconds"]
    return speeds


# --- measuring -----------------------------------------------------------------------------------


class _Clock(Callback):
    """A watcher that notes when the rounds of the last session are over."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def session_started(self, event: SessionStarted) -> None:
        self.times = []

    def round_finished(self, event: RoundFinished) -> None:
        self.times.append(time.perf_counter())


def measure(sample: TimedRun) -> float:
    """Return the seconds per device-step and lane of a short run, at its fourth session."""
    from ebbflow import experiment  # noqa: PLC0415 - torch is for those who measure

    cell = _short(sample)
    clock = _Clock()
    experiment.run(cell.config, callbacks=[clock])
    gaps = [after - before for before, after in zip(clock.times, clock.times[1:], strict=False)]
    train = sample.train or cell.config.data.limit_train or TRAINING_SAMPLES[sample.dataset]
    done = device_steps(cell.config, train) * lanes(cell.config, cell.config.sessions)
    return median(gaps) / done


def _short(sample: TimedRun) -> Cell:
    split = DataSplit(sample.dataset, overlap=0.0, alpha=0.7)
    variant: dict[str, Any] = {
        "model.kind": sample.model,
        "precision": sample.precision,
        "partition.devices": sample.devices,
        "sessions": 4,
        "rounds": sample.rounds,
        "pilot.rounds": 1,
    }
    if sample.dataset == "agnews":
        variant["data.limit_train"] = 43_600
    if sample.train is not None:
        variant |= {"data.limit_train": sample.train, "data.limit_test": sample.train // 4}
    return make_cell(split, ["fedprox"], 100, variant=variant, subset=True)


def write_speeds(speeds: Mapping[str, float], path: Path) -> None:
    """Write the table, with where and when it was measured."""
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "seconds": {name: float(f"{value:.3g}") for name, value in speeds.items()},
    }
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def measure_all(samples: Sequence[TimedRun] = TIMED_RUNS) -> Iterator[tuple[str, float]]:
    """Yield every speed as it is measured."""
    for sample in samples:
        yield key(sample.dataset, sample.model, sample.precision), measure(sample)
