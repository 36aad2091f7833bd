"""The history of a run as a table, and one of its sessions as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from safetensors import safe_open

from ebbflow.core.errors import EbbflowError
from ebbflow.runs.kept_files import kept_files
from ebbflow.runs.records import EVENTS, read_lines


def history_table(folder: Path) -> Table:
    """Return a table of all past sessions that a run keeps."""
    table = Table("algorithm", "method", "seed", "session", "devices", "drew on", "KiB", "file")
    for kept in kept_files(folder):
        facts = kept.facts
        table.add_row(
            kept.algorithm,
            kept.method,
            str(kept.seed),
            str(facts.get("session", "pilot")),
            str(facts.get("devices", "")),
            _weights(facts.get("drew_on", {})),
            f"{facts['bytes'] / 1024:.0f}",
            kept.state,
        )
    return table


def session_report(
    folder: Path, session: int, method: str | None, seed: int | None
) -> Iterator[str]:
    """Yield a few lines on one past session, for each method and seed."""
    chosen = [
        kept
        for kept in kept_files(folder)
        if kept.facts.get("session") == session
        and method in (None, kept.method)
        and seed in (None, kept.seed)
    ]
    if not chosen:
        raise EbbflowError(
            f"{folder} keeps no session {session} of that method and seed: `ebbflow history ls "
            f"{folder}` lists what it keeps"
        )
    starts = [event for event in read_lines(folder / EVENTS) if event["event"] == "start"]
    for kept in chosen:
        yield f"{kept.algorithm}  {kept.method}  seed {kept.seed}  session {session}"
        for event in starts:
            names = (event["algorithm"], event["method"], event["seed"], event["session"])
            if names == (kept.algorithm, kept.method, kept.seed, session):
                yield f"  devices   {len(event['devices'])}, labels {event['labels']}"
                yield f"  started   at accuracy {event['accuracy']:.2f} %, loss {event['loss']:.4f}"
                for past, weight in event["weights"].items():
                    distance = event["distances"].get(past)
                    apart = "" if distance is None else f", distance {distance:.6g}"
                    yield f"  drew on   session {past}: weight {weight:.6g}{apart}"
        yield f"  file      {kept.path} ({kept.state})"
        if kept.state == "ok":
            with safe_open(kept.path, framework="numpy") as tensors:
                for name in sorted(tensors.keys()):
                    shape = tuple(tensors.get_slice(name).get_shape())
                    yield f"  tensor    {name} {shape}"


def _weights(drawn: dict[str, float]) -> str:
    """Return the past sessions with a visible weight, the largest first."""
    order = sorted(drawn.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{z}: {weight:.2f}" for z, weight in order if weight >= 0.005)
