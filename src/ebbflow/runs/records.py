"""The files of a run folder, read without importing torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
HISTORY = "history"
MANIFEST = "manifest.json"
RESTORE = "restore the file, or start a new run"


class Round(NamedTuple):
    """The result of one method in one round: one line of ``metrics.jsonl``.

    ``accuracy`` is in percent, over the test samples of the labels present in the session, after
    the round's aggregation; rounds and sessions count from one.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    round: int
    accuracy: float
    loss: float
    lr: float
    devices: int
    participants: int


def claim_folder(path: Path, config: dict[str, Any]) -> None:
    """Create a new run folder with its configuration; raise an error if it is in use."""
    if (path / CONFIG).exists():
        raise EbbflowError(
            f"{path} already holds a run: resume it with `ebbflow resume {path}`, or choose "
            "another --out"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise EbbflowError(f"{path} exists and is not an empty folder: choose another --out")
    try:
        path.mkdir(parents=True, exist_ok=True)
        # TOML has no null: values left out are filled in with the defaults again on reading.
        write_atomically(path / CONFIG, tomli_w.dumps(_without_none(config)).encode())
    except OSError as error:
        raise EbbflowError(
            f"the run folder {path} cannot be written ({error.strerror}): choose another --out"
        ) from None


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def check_run(folder: Path) -> None:
    """Raise an error unless this is a run folder."""
    if not (folder / CONFIG).is_file():
        raise EbbflowError(f"{folder} holds no ebbflow run ({CONFIG} is missing): check the path")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as indented JSON, atomically."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


@dataclass(frozen=True)
class Records:
    """The outcome of an experiment.

    ``rounds`` holds every round of every method, ``rows`` the window accuracies as in
    ``summary.json``, ``events`` everything else (each session's start with the past sessions it
    drew on, costs, warnings); ``folder`` is the run folder, if there is one.
    """

    config: dict[str, Any]
    rounds: list[Round] = field(repr=False)
    rows: list[dict[str, Any]] = field(repr=False)
    events: list[dict[str, Any]] = field(repr=False)
    folder: Path | None = None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file, except a last line that a crash cut short."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith("\n"):
                yield _object(line, f"{path}, line {number}")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a run folder."""
    try:
        return _object(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise EbbflowError(f"{path} cannot be read ({error}): {RESTORE}") from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise EbbflowError(f"{where} is no JSON object: {RESTORE}")
    return content


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the facts and the checksum of each file in a history folder."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    files = read_json(path).get("files")
    if not isinstance(files, dict) or not all(
        isinstance(facts, dict) and {"sha256", "bytes"} <= facts.keys() for facts in files.values()
    ):
        raise EbbflowError(f"{path} is no manifest of a history: {RESTORE}")
    return files


def read_rounds(folder: Path) -> list[Round]:
    """Return every round in a run folder."""
    lines = enumerate(read_lines(folder / METRICS), start=1)
    try:
        return [Round(**line) for number, line in lines]
    except TypeError:
        raise EbbflowError(f"{folder / METRICS} is not of this version: {RESTORE}") from None


def read_records(folder: Path) -> Records:
    """Return the records of a finished run."""
    summary = read_json(folder / SUMMARY)
    return Records(
        summary["config"],
        read_rounds(folder),
        summary["rows"],
        list(read_lines(folder / EVENTS)),
        folder,
    )
