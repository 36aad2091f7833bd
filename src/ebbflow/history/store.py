"""A method's past on disk: one safetensors file per session, and a manifest of checksums.

No pickle anywhere: opening a history from a stranger runs none of their code.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256, write_atomically
from ebbflow.core.types import Entry, Layout, ModelState
from ebbflow.records import MANIFEST, RESTORE, read_manifest

PILOT = "pilot.safetensors"


class Store:
    """The history of one method of one run, in a folder of its own.

    Parameters are stored by their names (``theta/weight`` ...), so that any tool that reads
    safetensors can use a past model; ``signature/...`` holds the pseudo-gradient.
    """

    def __init__(self, folder: Path, layout: Layout, buffer_layout: Layout) -> None:
        self.folder = folder
        self.layout = layout
        self.buffer_layout = buffer_layout

    def write(self, entry: Entry, **facts: Any) -> None:
        """Save one past session, with facts about it for the manifest."""
        tensors = self._tensors(entry.model)
        if entry.signature is not None:
            tensors |= _named(entry.signature, self.layout, "signature")
        self._save(_file(entry.session), tensors, {"session": entry.session, **facts})

    def write_pilot(self, pilot: ModelState) -> None:
        """Save the pilot model."""
        self._save(PILOT, self._tensors(pilot), {})

    def read(self, session: int) -> Entry:
        """Load one past session after checking its digest."""
        tensors = self._load(_file(session))
        signed = any(name.startswith("signature/") for name in tensors)
        signature = _flat(tensors, self.layout, "signature") if signed else None
        return Entry(session, self._model(tensors), signature)

    def read_pilot(self) -> ModelState:
        """Load the pilot model after checking its digest."""
        return self._model(self._load(PILOT))

    def keep(self, sessions: Collection[int]) -> None:
        """Delete the entries of all other sessions."""
        files = self._files()
        kept = {
            name: facts
            for name, facts in files.items()
            if "session" not in facts or facts["session"] in sessions
        }
        if len(kept) == len(files):
            return
        # The manifest first: a file without a line is rubbish, a line without a file a loss.
        self._write_manifest(kept)
        for name in files.keys() - kept.keys():
            (self.folder / name).unlink(missing_ok=True)

    def _tensors(self, model: ModelState) -> dict[str, Tensor]:
        theta = _named(model.theta, self.layout, "theta")
        return theta | _named(model.buffers, self.buffer_layout, "buffers")

    def _model(self, tensors: dict[str, Tensor]) -> ModelState:
        return ModelState(
            _flat(tensors, self.layout, "theta"), _flat(tensors, self.buffer_layout, "buffers")
        )

    def _save(self, name: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = save({key: tensor.contiguous() for key, tensor in tensors.items()})
        write_atomically(self.folder / name, content)
        about = {**facts, "sha256": sha256(content), "bytes": len(content)}
        self._write_manifest(self._files() | {name: about})

    def _load(self, name: str) -> dict[str, Tensor]:
        path = self.folder / name
        expected = self._files().get(name, {}).get("sha256")
        try:
            content = path.read_bytes()
        except OSError:
            raise EbbflowError(f"the history entry {path} is missing: {RESTORE}") from None
        if sha256(content) != expected:
            raise EbbflowError(
                f"the history entry {path} does not match its checksum in {MANIFEST}: it was "
                f"changed or damaged; {RESTORE}"
            )
        try:
            return load(content)
        except SafetensorError as error:
            raise EbbflowError(
                f"the history entry {path} holds no tensors ({error}): {RESTORE}"
            ) from None

    def _files(self) -> dict[str, dict[str, Any]]:
        return read_manifest(self.folder)

    def _write_manifest(self, files: dict[str, dict[str, Any]]) -> None:
        text = json.dumps({"version": 1, "files": dict(sorted(files.items()))}, indent=1)
        write_atomically(self.folder / MANIFEST, text.encode())


def _file(session: int) -> str:
    return f"session-{session:04d}.safetensors"


def _named(flat: Tensor, layout: Layout, prefix: str) -> dict[str, Tensor]:
    # Clones, because safetensors refuses tensors that share memory.
    parts = vector.unflatten(flat.detach().cpu(), layout).items()
    return {f"{prefix}/{name}": tensor.clone() for name, tensor in parts}


def _flat(tensors: dict[str, Tensor], layout: Layout, prefix: str) -> Tensor:
    wanted = {f"{prefix}/{n}": shape for n, shape in zip(layout.names, layout.shapes, strict=True)}
    found = {n: tuple(t.shape) for n, t in tensors.items() if n.startswith(f"{prefix}/")}
    if found != wanted:
        raise EbbflowError(
            f"a history entry holds {found} where {wanted} is expected: it belongs to another model"
        )
    return vector.flatten({n: tensors[f"{prefix}/{n}"] for n in layout.names}, layout)
