"""What a run remembers, for reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from safetensors import safe_open

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256
from ebbflow.runs.records import EVENTS, HISTORY, MANIFEST, check_run, read_lines, read_manifest


class Kept(NamedTuple):
    """One file of a history: whose it is, what the manifest says, and whether it is intact."""

    algorithm: str
    method: str
    seed: int
    path: Path
    facts: dict[str, Any]

    @property
    def state(self) -> str:
        """Return ``ok``, ``missing`` or ``damaged``."""
        if not self.path.exists():
            return "missing"
        return "ok" if sha256(self.path.read_bytes()) == self.facts["sha256"] else "damaged"


def kept_files(folder: Path) -> list[Kept]:
    """Return every file in the histories of a run."""
    check_run(folder)
    found = []
    for manifest in sorted((folder / HISTORY).glob(f"*/*/seed-*/{MANIFEST}")):
        algorithm, method, seed = manifest.parts[-4:-1]
        for name, facts in read_manifest(manifest.parent).items():
            number = int(seed.removeprefix("seed-"))
            found.append(Kept(algorithm, method, number, manifest.parent / name, facts))
    return found


def history_table(folder: Path) -> Table:
    """Return a table of all past sessions of a run."""
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
    """Yield lines about one past session of each method and seed."""
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
    """Return the past sessions that counted, largest weight first."""
    order = sorted(drawn.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{z}: {weight:.2f}" for z, weight in order if weight >= 0.005)
