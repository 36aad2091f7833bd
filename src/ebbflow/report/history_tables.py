"""The history of a run as a table, and one of its sessions as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from safetensors import safe_open

from ebbflow.core.errors import EbbflowError
from ebbflow.runs.kept_files import KeptFile, kept_files
from ebbflow.runs.records import read_events
from ebbflow.runs.summary import Key


def history_table(folder: Path) -> Table:
    """Return a table of all past sessions that a run keeps."""
    table = Table("algorithm", "method", "seed", "session", "devices", "drew on", "KiB", "file")
    starts = _starts(folder)
    for kept in kept_files(folder):
        facts, event = kept.facts, _start(starts, kept)
        table.add_row(
            kept.algorithm,
            kept.method,
            str(kept.seed),
            str(facts.get("session", "pilot")),
            str(facts.get("devices", "")),
            _weights(event.get("mixture") or event.get("weights") or facts.get("drew_on", {})),
            f"{facts['bytes'] / 1024:.0f}",
            kept.state,
        )
    return table


def history_records(folder: Path) -> list[dict[str, Any]]:
    """Return what ``ebbflow history ls --json`` prints of each past session that a run keeps."""
    starts = _starts(folder)
    return [_record(kept, _start(starts, kept)) for kept in kept_files(folder)]


def session_records(
    folder: Path, session: int, methods: Collection[str] = (), seeds: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Return what ``ebbflow history show --json`` prints of one session, by method and seed."""
    found, starts = [], _starts(folder)
    for kept in _chosen(folder, session, methods, seeds):
        event = _start(starts, kept)
        about = ("labels", "accuracy", "loss", "asked", "distances")
        shapes = dict(_shapes(kept)) if kept.state == "ok" else None
        started = {name: event.get(name) for name in about}
        found.append({**_record(kept, event), **started, "tensors": shapes})
    return found


def _record(kept: KeptFile, event: dict[str, Any]) -> dict[str, Any]:
    facts = kept.facts
    drawn = event.get("mixture") or event.get("weights") or facts.get("drew_on", {})
    return {
        "algorithm": kept.algorithm,
        "method": kept.method,
        "seed": kept.seed,
        "session": facts.get("session"),  # none for a pilot model
        "devices": facts.get("devices"),
        "drew_on": drawn,
        "file": str(kept.path),
        "bytes": facts["bytes"],
        "state": kept.state,
    }


def _chosen(
    folder: Path, session: int, methods: Collection[str], seeds: Collection[int]
) -> list[KeptFile]:
    """Return the files of one session; no method and no seed means all of them."""
    chosen = [
        kept
        for kept in kept_files(folder)
        if kept.facts.get("session") == session
        and (not methods or kept.method in methods)
        and (not seeds or kept.seed in seeds)
    ]
    if not chosen:
        raise EbbflowError(
            f"{folder} keeps no session {session} of that method and seed: `ebbflow history ls "
            f"{folder}` lists what it keeps"
        )
    return chosen


def _shapes(kept: KeptFile) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tensors of a file by name, without reading them."""
    with safe_open(kept.path, framework="numpy") as tensors:
        for name in sorted(tensors.keys()):
            yield name, tuple(tensors.get_slice(name).get_shape())


def session_report(
    folder: Path, session: int, methods: Collection[str] = (), seeds: Collection[int] = ()
) -> Iterator[str]:
    """Yield a few lines on one past session, for each method and seed."""
    starts = _starts(folder)
    for kept in _chosen(folder, session, methods, seeds):
        yield f"{kept.algorithm}  {kept.method}  seed {kept.seed}  session {session}"
        event = _start(starts, kept)
        if event:
            yield f"  devices   {len(event['devices'])}, labels {event['labels']}"
            yield f"  started   at accuracy {event['accuracy']:.2f} %, loss {event['loss']:.4f}"
            if event.get("asked"):
                yield f"  asked     {len(event['asked'])} devices"
            for name, weight in event.get("mixture", {}).items():
                yield f"  drew on   {_described(name)}: weight {weight:.6g}"
            for past, weight in event["weights"].items():
                distance = event["distances"].get(past)
                apart = "" if distance is None else f", distance {distance:.6g}"
                yield f"  drew on   session {past}: weight {weight:.6g}{apart}"
        yield f"  file      {kept.path} ({kept.state})"
        if kept.state == "ok":
            for name, shape in _shapes(kept):
                yield f"  tensor    {name} {shape}"


def _starts(folder: Path) -> dict[Key, dict[str, Any]]:
    """Return the events "start" of a run by method, seed and session."""
    return {
        Key(event["algorithm"], event["method"], event["seed"], event["session"]): event
        for event in read_events(folder)
        if event["event"] == "start"
    }


def _start(starts: dict[Key, dict[str, Any]], kept: KeptFile) -> dict[str, Any]:
    """Return the event of a kept session; empty for a pilot model."""
    session = kept.facts.get("session", 0)
    return starts.get(Key(kept.algorithm, kept.method, kept.seed, session), {})


def _described(name: str) -> str:
    """Return what a model of a learned start's mixture is.

    >>> _described("final 3"), _described("carried")
    ('final model of session 3', 'the model carried over')
    """
    kind, _, session = name.partition(" ")
    if session:
        return f"{'starting' if kind == 'start' else kind} model of session {session}"
    return "the model carried over" if kind == "carried" else f"the {kind} model"


def _weights(drawn: dict[str, float]) -> str:
    """Return what was drawn on with a visible weight, the largest first; weights may be negative.

    >>> _weights({"carried": 0.7, "start 2": -0.2, "final 3": 0.5, "pilot": 0.001})
    'carried: 0.70, final 3: 0.50, start 2: -0.20'
    """
    order = sorted(drawn.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{z}: {weight:.2f}" for z, weight in order if abs(weight) >= 0.005)
