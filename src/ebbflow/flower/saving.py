"""The server's side of a federation on disk: a checkpoint after every round, and all that was.

A history folder holds two checkpoints, the past sessions' models, and two files of lines for people
and programs: ``rounds.jsonl`` and ``events.jsonl``. The order of writing is that of a simulation's
run folder: past models first, then the checkpoint that refers to them, with the lengths of the line
files at that moment. Nothing is pickled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, sha256, write_digested
from ebbflow.core.start import StartingPoint
from ebbflow.core.tensor_files import as_safetensors
from ebbflow.core.types import ModelState
from ebbflow.runs import records
from ebbflow.runs.folder import sweep
from ebbflow.runs.history import Store
from ebbflow.runs.plain import check_plain
from ebbflow.sessions.memory import Memory

ROUNDS, EVENTS = "rounds.jsonl", "events.jsonl"
OVER, DONE = "over", "done"
"""The events of a session that is over, and of the end of all."""
_NAME = re.compile(r"checkpoint-(\d{6,12})\.json")
_KEPT = 2


class HistoryFolder:
    """The folder of a federation's server, locked for as long as it is open."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        make_folder(self.path)
        check_plain(self.path)
        self._lock = FileLock(self.path / records.LOCK)
        try:
            self._lock.acquire(timeout=0.2)
        except Timeout:
            raise EbbflowError(
                f"another process is writing to {self.path}: wait for it, or stop it first"
            ) from None
        sweep(self.path)

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    # --- lines ---

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Append a line, so that it is on the disk."""
        with (self.path / name).open("ab") as file:
            file.write(records.line_of(line))
            file.flush()
            os.fsync(file.fileno())

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of a file."""
        return list(records.read_lines(self.path / name))

    # --- checkpoints ---

    def write(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, and delete those before the last two."""
        found = self._checkpoints()
        number = found[0][0] + 1 if found else 1
        path = self.path / f"checkpoint-{number:06d}.json"
        digest = write_digested(path.with_suffix(".safetensors"), as_safetensors(tensors))
        lengths = {name: self._length(name) for name in (ROUNDS, EVENTS)}
        records.write_sealed(path, {**facts, "lines": lengths, "sha256": digest})
        for _, old in self._checkpoints()[_KEPT:]:
            old.unlink()
        known = {old.stem for _, old in self._checkpoints()}
        for left in self.path.glob("checkpoint-*.safetensors"):
            if left.stem not in known:
                left.unlink()

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return the newest whole checkpoint, with the line files cut back to it, if there is one.

        A damaged checkpoint is passed over for the one before it. Where none is whole, the first
        error is raised.
        """
        first: EbbflowError | None = None
        found = self._checkpoints()
        for _, path in found:
            try:
                facts = records.read_sealed(path)
                tensors = _tensors(path, str(facts["sha256"]))
            except EbbflowError as error:
                first = first or error
                continue
            self._cut(facts["lines"])
            return facts, tensors
        if first is not None:
            raise first
        for name in (ROUNDS, EVENTS):
            (self.path / name).unlink(missing_ok=True)
        return None

    def _checkpoints(self) -> list[tuple[int, Path]]:
        matches = ((_NAME.fullmatch(path.name), path) for path in self.path.iterdir())
        return sorted(((int(m[1]), path) for m, path in matches if m), reverse=True)

    def _length(self, name: str) -> int:
        path = self.path / name
        return path.stat().st_size if path.exists() else 0

    def _cut(self, lengths: Mapping[str, int]) -> None:
        for name in (ROUNDS, EVENTS):
            kept = int(lengths.get(name, 0))
            if self._length(name) < kept:
                raise EbbflowError(
                    f"{self.path / name} is shorter than when the federation was last saved: "
                    f"{records.RESTORE}"
                )
            if self._length(name) > kept:
                os.truncate(self.path / name, kept)


def is_written_to(history: Path) -> bool:
    """Whether a server is at work on a history folder now."""
    if not (history / records.LOCK).exists():
        return False
    lock = FileLock(history / records.LOCK)
    try:
        with lock.acquire(timeout=0):
            return False
    except Timeout:
        return True


def final_theta(history: Path) -> Tensor:
    """Return the model that a federation has reached, from its history folder."""
    folder = HistoryFolder(history)
    try:
        found = folder.read()
    finally:
        folder.close()
    if found is None:
        raise EbbflowError(f"{history} holds no federation: name the history folder of one")
    return found[1]["memory/model/theta"]


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    file = path.with_suffix(".safetensors")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise EbbflowError(
            f"the checkpoint {file} cannot be read ({error.strerror}): {records.RESTORE}"
        ) from None
    if sha256(content) != digest:
        raise EbbflowError(f"the checkpoint {file} does not match its checksum: {records.RESTORE}")
    try:
        found: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise EbbflowError(
            f"the checkpoint {file} holds no tensors ({error}): {records.RESTORE}"
        ) from None
    return found


# --- what a method remembers ----------------------------------------------------------------------


def memory_saved(memory: Memory) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a memory as facts and tensors; past sessions are in the store already."""
    tensors = _model("memory/model", memory.model)
    for place, pilot in enumerate(memory.pilots):
        tensors |= _model(f"memory/pilots/{place}", pilot)
    if memory.pilot is not None:
        tensors |= _model("memory/pilot", memory.pilot)
    facts: dict[str, Any] = {
        "pilots": len(memory.pilots),
        "pilot": memory.pilot is not None,
        "past": [past.number for past in memory.past],
        "devices": list(memory.devices),
        "start": None,
    }
    point = memory.start
    if point is not None:
        facts["start"] = {
            "kept": point.kept is not None,
            "signed": point.signature is not None,
            "weights": sorted(point.weights.items()),
            "distances": sorted(point.distances.items()),
            "mixture": dict(point.mixture),
        }
        tensors |= _model("memory/start", point.model)
        if point.signature is not None:
            tensors["memory/signature"] = point.signature
    return facts, tensors


def memory_read(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], store: Store) -> Memory:
    """Return the memory that was saved."""
    memory = Memory(
        model=_model_of("memory/model", tensors),
        pilots=[_model_of(f"memory/pilots/{k}", tensors) for k in range(facts["pilots"])],
        pilot=_model_of("memory/pilot", tensors) if facts["pilot"] else None,
        past=store.read_all(facts["past"]),
        devices=tuple(facts["devices"]),
    )
    said = facts["start"]
    if said is not None:
        begun = _model_of("memory/start", tensors)
        memory.start = StartingPoint(
            begun,
            weights=dict(said["weights"]),
            distances=dict(said["distances"]),
            mixture=dict(said["mixture"]),
            signature=tensors["memory/signature"] if said["signed"] else None,
            kept=begun if said["kept"] else None,
        )
    return memory


def _model(name: str, model: ModelState) -> dict[str, Tensor]:
    return {f"{name}/theta": model.theta, f"{name}/buffers": model.buffers}


def _model_of(name: str, tensors: Mapping[str, Tensor]) -> ModelState:
    empty = torch.zeros(0)
    return ModelState(tensors[f"{name}/theta"], tensors.get(f"{name}/buffers", empty))
