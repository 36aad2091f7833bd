"""What it costs to be durable: the share of a run's time that its folder takes.

Both times are of the same run, so a busy machine disturbs them alike. All that a run in a folder
does beyond one in memory is counted: lines, digests, history, checkpoints, bringing them to the
disk, the data's fingerprint, and reading the records back at the end.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.data import datasets
from ebbflow.recording import Recorder
from ebbflow.runs import records
from ebbflow.runs.folder import RunFolder

MNIST: dict[str, Any] = {"dataset": "mnist", "partition.devices": 100}
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "digits, 20 devices, softmax": (5, {"dataset": "digits"}),
    "MNIST, 100 devices, softmax": (3, MNIST),
    "MNIST, 100 devices, MLP": (1, {**MNIST, "model.kind": "mlp", "sessions": 3}),
}
"""How often each is run, the longest only once."""
METHODS = ["learned", "warm_start", "previous"]


class Share(NamedTuple):
    """A run's rounds and seconds, and the shares of its folder.

    Of the time, of the time while waiting for the disk, and of the processor's time.
    """

    name: str
    rounds: int
    seconds: float
    time: float
    disk: float
    processor: float


class _Watch:
    """Adds up the time that is spent in functions, those that call each other counted once."""

    def __init__(self) -> None:
        self.seconds = self.processor = 0.0
        self._depth = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        began, used = time.perf_counter(), time.thread_time()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - began
                self.processor += time.thread_time() - used

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self.running():
                return function(*arguments, **options)

        return call


DURABLE: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Recorder, ("session_started", "round_finished", "session_finished", "finish")),
    (experiment, ("note_environment", "rewind")),
    (records, ("claim_folder", "read_rounds", "write_sealed", "read_records")),
    (RunFolder, ("open", "close")),
)
"""What is called for the folder's sake alone."""


def measure(name: str, folder: Path, settings: dict[str, Any]) -> Share:
    """Run once and return what the folder took."""
    layers = Layers()
    for key, value in {"methods": METHODS, "seeds": [1], **settings}.items():
        layers.add_key(key, value, name)
    config = layers.config()
    data = datasets.load(config.dataset)  # a run in memory needs it as well
    watch, disk = _Watch(), _Watch()
    with ExitStack() as patches:
        for owner, names in DURABLE:
            for each in names:
                timed = watch.timed(getattr(owner, each))
                patches.enter_context(mock.patch.object(owner, each, timed))
        patches.enter_context(mock.patch.object(os, "fsync", disk.timed(os.fsync)))
        began, used = time.perf_counter(), time.process_time()
        found = experiment.run(config, folder, dataset=data)
        whole, processor = time.perf_counter() - began, time.process_time() - used
    shares = watch.seconds / whole, disk.seconds / whole, watch.processor / processor
    return Share(name, len(found.rounds), whole, *shares)


def durability(scratch: Path, part: int) -> list[Share]:
    """Return the medians of every setting; in parts, of the first ones only, and once."""
    scratch.mkdir(parents=True, exist_ok=True)
    found: list[Share] = []
    for name, (times, settings) in list(SETTINGS.items())[: 3 if part == 1 else 1]:
        runs = [
            measure(name, scratch / f"{len(found)}-{number}", settings)
            for number in range(times if part == 1 else 1)
        ]
        found.append(
            Share(name, *(statistics.median(v) for v in zip(*(r[1:] for r in runs), strict=True)))
        )
    return found
