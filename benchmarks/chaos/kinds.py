"""The runs that are disturbed, and what has to be the same afterwards."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path
from typing import Any

from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.runs import records
from ebbflow.runs.verify import verify

SHORT: dict[str, Any] = {
    "dataset": "digits",
    "data.limit_train": 300,
    "methods": ["learned", "previous"],
    "seeds": [1],
    "sessions": 4,
    "rounds": 3,
    "partition.devices": 4,
    "checkpoint.seconds": 1e-9,
    "engine.workers": 1,
}
KINDS: dict[str, dict[str, Any]] = {
    "learned start": {},
    "warm start": {"methods": ["warm_start", "average"]},
    "distillation": {"methods": ["continuous"]},
    "SCAFFOLD, states kept": {"algorithm": ["scaffold"], "boundary.state": "keep"},
    "two algorithms": {"algorithm": ["fedadam", "fedprox"], "methods": ["warm_start"]},
    "two seeds": {"seeds": [1, 2], "methods": ["warm_start"]},
    "few sessions kept": {"history.keep": "last", "history.limit": 1, "sessions": 5},
    "diverse sessions kept": {
        "history.keep": "diverse",
        "history.limit": 2,
        "sessions": 5,
        "methods": ["warm_start"],
    },
    "random churn": {"schedule.kind": "random", "sessions": 6, "rounds": 2},
}


def configured(kind: str) -> Config:
    """Return the configuration of a kind of run."""
    layers = Layers()
    for key, value in {**SHORT, **KINDS[kind]}.items():
        layers.add_key(key, value, kind)
    return layers.config()


def run_to_the_end(kind: str, folder: Path) -> None:
    """Start a run, or resume it if there is one."""
    if (folder / records.CONFIG).exists():
        experiment.resume(folder)
    else:
        experiment.run(configured(kind), folder)


def results(folder: Path) -> dict[str, str]:
    """Return the digests of what a run has computed: rounds, rows, past sessions."""
    kept = [folder / records.METRICS, folder / records.SUMMARY]
    kept += sorted((folder / records.HISTORY).rglob("*.*"))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in kept
        if path.is_file()
    }


def wrong(folder: Path, whole: dict[str, str]) -> str:
    """Return what differs from an undisturbed run, or what is wrong with the folder; or nothing."""
    ours = results(folder)
    differing = sorted(
        name for name in ours.keys() | whole.keys() if ours.get(name) != whole.get(name)
    )
    findings = [f"{finding.state} {finding.path}" for finding in verify(folder)]
    return ", ".join([*differing, *findings])


def copied(folder: Path, to: Path) -> Path:
    """Return a fresh copy of a run folder."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def flip(path: Path, draw: random.Random) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    bit = draw.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
