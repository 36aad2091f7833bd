"""Checkpoints: a JSON file with the name of a tensor file and the lengths of the line files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safetensors.torch import load
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256, write_atomically
from ebbflow.core.tensor_files import as_safetensors
from ebbflow.runs import records
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.records import RESTORE

CHECKPOINT = "checkpoint.json"


@dataclass(frozen=True)
class Checkpoint:
    """How far a run has come: the seed, session and round completed, and facts about each track."""

    config: dict[str, Any]
    seed: int
    session: int
    round: int
    tracks: list[dict[str, Any]]
    lengths: dict[str, int]
    tensors: str
    sha256: str


def write_checkpoint(
    folder: RunFolder,
    place: tuple[int, int, int],
    config: dict[str, Any],
    tracks: Sequence[dict[str, Any]],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a checkpoint for (seed, session, round), then delete the tensors of older ones."""
    seed, session, t = place
    lengths = folder.line_lengths()
    name = f"checkpoint-{seed}-{session}-{t}.safetensors"
    digest = write_atomically(folder.path / name, as_safetensors(tensors))
    records.write_json(
        folder.path / CHECKPOINT,
        {
            "version": 1,
            "config": config,
            "seed": seed,
            "session": session,
            "round": t,
            "lengths": lengths,
            "tensors": name,
            "sha256": digest,
            "tracks": list(tracks),
        },
    )
    for old in folder.path.glob("checkpoint-*.safetensors"):
        if old.name != name:
            old.unlink()


def read_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """Return the last checkpoint, or None if there is none yet."""
    path = folder.path / CHECKPOINT
    if not path.exists():
        return None
    content = records.read_json(path)
    if content.pop("version", None) != 1:
        raise EbbflowError(f"{path} is no checkpoint of this version: {RESTORE}")
    return Checkpoint(**content)


def read_tensors(folder: RunFolder, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return a checkpoint's tensors after checking their digest."""
    path = folder.path / checkpoint.tensors
    try:
        content = path.read_bytes()
    except OSError:
        raise EbbflowError(f"the checkpoint {path} is missing: {RESTORE}") from None
    if sha256(content) != checkpoint.sha256:
        raise EbbflowError(f"the checkpoint {path} does not match its checksum: {RESTORE}")
    return load(content)
