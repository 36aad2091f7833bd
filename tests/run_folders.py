"""Run folders in tests: to look into sealed files, to change them, and to make them old."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebbflow.runs import records
from ebbflow.runs.checkpoint import FORMER, checkpoint_paths
from tests.test_cli import tree

# A run with two methods that keeps few sessions and saves every round.
SMALL: dict[str, Any] = {
    "methods": ["warm_start", "previous"],
    "seeds": [1],
    "sessions": 4,
    "rounds": 3,
    "partition.devices": 4,
    "data.limit_train": 300,
    "history.keep": "last",
    "history.limit": 2,
    "checkpoint.seconds": 1e-9,
}

Change = Callable[[dict[str, Any]], object]


def last_checkpoint(folder: Path) -> Path:
    return checkpoint_paths(folder)[0]


def saved(folder: Path) -> dict[str, Any]:
    """Return the content of the last checkpoint."""
    return records.read_sealed(last_checkpoint(folder))


def resealed(path: Path, change: Change) -> None:
    """Change a sealed file and seal it again, as somebody would who knows how."""
    content = records.read_sealed(path)
    change(content)
    records.write_sealed(path, content)


def made_old(folder: Path) -> None:
    """Make a run folder one of version 1: no seals, no checksums of lines, one checkpoint."""
    for name in (records.METRICS, records.EVENTS):
        path = folder / name
        lines = [json.dumps(line) for line in records.read_lines(path)]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    newest, *others = checkpoint_paths(folder)
    content = records.read_sealed(newest)
    content["lengths"] = {
        name: (folder / name).stat().st_size if state["bytes"] else 0
        for name, state in content.pop("lines").items()
    }
    former = "checkpoint-{seed}-{session}-{round}.safetensors".format(**content)
    (folder / content["tensors"]).rename(folder / former)
    content["tensors"] = former
    _write(folder / FORMER, {"version": 1, **content})
    for path in (newest, *others):
        path.unlink()
        path.with_suffix(".safetensors").unlink(missing_ok=True)
    for path in folder.rglob(records.MANIFEST):
        _write(path, {"version": 1, **records.read_sealed(path)})
    for name in (records.ENVIRONMENT, records.SUMMARY):
        if (folder / name).exists():
            _write(folder / name, records.read_sealed(folder / name))
    path = folder / records.CONFIG
    path.write_text(path.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to / "run")
    return to / "run"


def same_results(folder: Path, whole: Path) -> bool:
    same = all(
        (folder / name).read_bytes() == (whole / name).read_bytes()
        for name in (records.METRICS, records.SUMMARY)
    )
    return same and tree(folder / records.HISTORY) == tree(whole / records.HISTORY)


def flipped(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
