"""Reads logs back, each by its own program's means, and says what should be in them.

The libraries are imported when variables keep them from calling home.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from ebbflow.runs.records import RunRecords

if TYPE_CHECKING:
    from mlflow import MlflowClient

Log = dict[tuple[str, str, int], dict[str, list[tuple[int, float]]]]
"""Steps and values in the order in which they were logged, by name, for each tracked run."""


def expected(outcome: RunRecords) -> Log:
    """Return what the records say, for tasks whose measure is the accuracy."""
    log: Log = defaultdict(lambda: defaultdict(list))
    lengths = {
        (e["seed"], e["session"]): e["rounds"] for e in outcome.events if e["event"] == "start"
    }

    def before(seed: int, session: int) -> int:
        return sum(length for (s, z), length in lengths.items() if s == seed and z < session)

    for r in outcome.rounds:
        step = before(r.seed, r.session) + r.round
        for name in ("accuracy", "loss", "lr", "devices", "participants"):
            log[r[:3]][name].append((step, getattr(r, name)))
    for e in outcome.events:
        if e["event"] not in ("start", "tested", "costs"):
            continue
        run = log[e["algorithm"], e["method"], e["seed"]]
        first = before(e["seed"], e["session"]) + 1
        last = first - 1 + lengths[e["seed"], e["session"]]
        if e["event"] == "start":
            run["start/accuracy"].append((first, e["accuracy"]))
            run["start/loss"].append((first, e["loss"]))
        elif e["event"] == "tested":
            run["final/accuracy"].append((last, e["all"]))
        else:
            for name in COUNTERS:
                total = sum(stage.get(name, 0) for stage in e["stages"].values())
                run[f"cost/{name}"].append((last, total))
            run["cost/stored_bytes"].append((last, e["stored"]["bytes"]))
    return log


COUNTERS = (
    *("uploads", "broadcasts", "steps", "samples", "bytes_up", "bytes_down"),
    *("distances", "mixed", "questions", "passes"),
)


def read_csv(folder: Path) -> Log:
    """Return what both tables hold."""
    log: Log = defaultdict(lambda: defaultdict(list))
    about = ("algorithm", "method", "seed", "session", "round", "step")
    for name in ("rounds.csv", "sessions.csv"):
        with (folder / "csv" / name).open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                run = log[line["algorithm"], line["method"], int(line["seed"])]
                step, t = int(line["step"]), int(line["round"])
                for column, value in line.items():
                    if column not in about and value:
                        at = step - t + 1 if column.startswith("start/") else step
                        run[column].append((at, float(value)))
    return log


def read_tensorboard(folder: Path) -> Log:
    """Return what TensorBoard would show."""
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")

    log: Log = {}
    for below in sorted((folder / "tensorboard").glob("*/*/seed-*")):
        found = accumulator.EventAccumulator(str(below), size_guidance={"scalars": 0})
        found.Reload()
        algorithm, method, seed = below.parts[-3:]
        log[algorithm, method, int(seed.removeprefix("seed-"))] = {
            name: [(event.step, event.value) for event in found.Scalars(name)]
            for name in found.Tags()["scalars"]
        }
    return log


def read_wandb(folder: Path) -> Log:
    """Return what the newest file of each of its runs holds: it would replace the others."""
    log: Log = {}
    newest = {path.stem: path for path in sorted((folder / "wandb").glob("*/run-*.wandb"))}
    for path, facts in json.loads((folder / "wandb" / "runs.json").read_text()).items():
        algorithm, method, seed = path.split("/")
        values: dict[str, list[tuple[int, float]]] = defaultdict(list)
        log[algorithm, method, int(seed.removeprefix("seed-"))] = values
        for step, items in wandb_history(newest[f"run-{facts['id']}"]):
            for name, value in items.items():
                values[name].append((step, value))
    return log


def wandb_history(path: Path, patience: float = 60.0) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the steps of one of W&B's files, with all values that are not its own.

    A process of its own writes the file, and may come to an end a little later than the run.
    """
    messages, until = import_module("wandb.proto.wandb_internal_pb2"), time.monotonic() + patience
    found: list[Any] = []
    while not any(record.WhichOneof("record_type") == "exit" for record in found):
        assert time.monotonic() < until, f"{path} does not end"
        time.sleep(0.01)
        found = [messages.Record.FromString(part) for part in _log_records(path.read_bytes())]
    for record in found:
        if record.WhichOneof("record_type") == "history":
            items = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            yield items["_step"], {n: v for n, v in items.items() if not n.startswith("_")}


def _log_records(content: bytes, block: int = 2**15, header: int = 7) -> Iterator[bytes]:
    """Yield the records of a file in LevelDB's log format, after W&B's own seven bytes."""
    place, parts = header, b""
    while place + header <= len(content):
        left = block - place % block
        if left < header:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + header : place + header + length]
        place += header + length
        if place > len(content):  # being written
            return
        if kind in (1, 4):  # the whole of a record, or its last part
            yield parts
            parts = b""


def mlflow_client(store: Path) -> MlflowClient:
    """Return MLflow's own client of a store of files."""
    from mlflow import MlflowClient  # noqa: PLC0415

    with mock.patch.dict(os.environ, {"MLFLOW_ALLOW_FILE_STORE": "true"}):
        return MlflowClient(tracking_uri=store.as_uri())


def read_mlflow(folder: Path) -> Log:
    """Return what MLflow's own client finds in its files."""
    client = mlflow_client(folder / "mlflow" / "mlruns")
    log: Log = {}
    for run in client.search_runs([e.experiment_id for e in client.search_experiments()]):
        facts = run.data.params
        log[facts["algorithm"], facts["method"], int(facts["seed"])] = {
            key: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, key))
            for key in run.data.metrics
        }
    return log


READERS: dict[str, Callable[[Path], Log]] = {
    "csv": read_csv,
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
}


def plain(log: Log) -> Log:
    """Return a log that can be compared: values as float32, which TensorBoard keeps."""

    def rounded(values: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
        return [(step, float(np.float32(value))) for step, value in values]

    return {run: {n: rounded(v) for n, v in names.items()} for run, names in log.items()}
