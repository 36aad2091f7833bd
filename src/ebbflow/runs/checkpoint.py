"""Checkpoints: a sealed JSON file, with the name of a tensor file and the state of the line files.

There are always two, once there have been two: if the newer one turns out to be damaged, the run
goes on from the older one and computes the rounds in between again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256, write_digested
from ebbflow.runs import records
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.records import RESTORE
from ebbflow.runs.schemas import CheckpointFacts, checked

if TYPE_CHECKING:
    from torch import Tensor

FORMER = "checkpoint.json"
"""The only checkpoint of a run of version 1."""
KEPT = 2
_NAME = re.compile(r"checkpoint-([0-9]{6,12})\.json")
_TENSORS = re.compile(r"checkpoint-[0-9-]{1,80}\.safetensors")
_FORMER_TENSORS = re.compile(r"checkpoint-[0-9]+-[0-9]+-[0-9]+\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """How far a run has come: the seed, session and round completed, and facts about each track.

    ``lines`` holds the length and digest of each line file; those of version 1 have no digests.
    """

    path: Path
    config: dict[str, Any]
    seed: int
    session: int
    round: int
    tracks: list[dict[str, Any]]
    lines: dict[str, dict[str, Any]]
    tensors: str
    sha256: str

    @property
    def place(self) -> str:
        """Where it left off, in words."""
        at = f"round {self.round}" if self.round else "its end"
        return f"seed {self.seed}, session {self.session}, {at}"


def write_checkpoint(
    folder: RunFolder,
    place: tuple[int, int, int],
    config: dict[str, Any],
    tracks: Sequence[dict[str, Any]],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a checkpoint for (seed, session, round), then delete those before the last two."""
    from ebbflow.core.tensor_files import as_safetensors  # noqa: PLC0415 - reading needs no torch

    seed, session, t = place
    lines = folder.line_states()
    paths = checkpoint_paths(folder.path)
    number = 1 + max((_number(path) for path in paths), default=0)
    path = folder.path / f"checkpoint-{number:06d}.json"
    name = path.with_suffix(".safetensors").name
    digest = write_digested(folder.path / name, as_safetensors(tensors))
    records.write_sealed(
        path,
        {
            "config": config,
            "seed": seed,
            "session": session,
            "round": t,
            "lines": lines,
            "tensors": name,
            "sha256": digest,
            "tracks": list(tracks),
        },
    )
    prune(folder, KEPT)


def prune(folder: RunFolder, kept: int) -> None:
    """Delete all checkpoints but the newest ones."""
    paths = checkpoint_paths(folder.path)
    # A checkpoint first, then its tensors: tensors without one are harmless.
    for path in paths[kept:]:
        path.unlink()
    for tensors in orphans(folder.path):
        tensors.unlink()


def orphans(folder: Path) -> list[Path]:
    """Return the files of tensors that belong to no checkpoint."""
    stems = {path.stem for path in checkpoint_paths(folder)}
    found = []
    for tensors in sorted(folder.glob("checkpoint-*.safetensors")):
        former = _FORMER_TENSORS.fullmatch(tensors.name) and Path(FORMER).stem in stems
        if _TENSORS.fullmatch(tensors.name) and tensors.stem not in stems and not former:
            found.append(tensors)
    return found


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return the files of a run's checkpoints, the newest first."""
    paths = [path for path in folder.glob("checkpoint-*.json") if _NAME.fullmatch(path.name)]
    paths.sort(key=_number, reverse=True)
    former = folder / FORMER
    return [*paths, former] if former.exists() else paths


def _number(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else 0


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint, after checking its digest and what it holds."""
    content = records.read_sealed(path)
    if path.name == FORMER:
        content = _former(content, path)
    else:
        content = checked(CheckpointFacts, content, str(path), RESTORE)
    return Checkpoint(path, **content)


def _former(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a checkpoint of version 1 as one of this version; its lines have no digests."""
    lengths, known = content.pop("lengths", {}), {**content, "lines": {}}
    if isinstance(lengths, dict):
        unknown = "0" * 64
        known["lines"] = {n: {"bytes": size, "sha256": unknown} for n, size in lengths.items()}
    content = checked(CheckpointFacts, known, str(path), RESTORE)
    for state in content["lines"].values():
        state["sha256"] = ""
    return content


def ends_at_a_line(path: Path, size: int) -> bool:
    """Whether a file's first so many bytes are there and end with a line."""
    if size == 0:
        return True
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def check_complete(folder: Path) -> None:
    """Raise an error if a line file is shorter than when the run was last saved."""
    for path in checkpoint_paths(folder):
        try:
            states = read_checkpoint(path).lines
        except EbbflowError:
            continue
        for name, state in states.items():
            lines = folder / name
            if not ends_at_a_line(lines, state["bytes"]):
                raise EbbflowError(
                    f"{lines} is shorter than when the run was last saved: {RESTORE}, or go back "
                    f"by `ebbflow resume {folder}`"
                )
        return


def read_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return a checkpoint's tensors after checking their digest."""
    # Reading what a checkpoint says needs no torch.
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load  # noqa: PLC0415

    path = checkpoint.path.parent / checkpoint.tensors
    try:
        content = path.read_bytes()
    except OSError:
        raise EbbflowError(f"the checkpoint {path} is missing: {RESTORE}") from None
    if sha256(content) != checkpoint.sha256:
        raise EbbflowError(f"the checkpoint {path} does not match its checksum: {RESTORE}")
    try:
        return load(content)
    except SafetensorError as error:
        raise EbbflowError(f"the checkpoint {path} holds no tensors ({error}): {RESTORE}") from None
