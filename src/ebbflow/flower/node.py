"""What a node keeps on its disk: its answers, its state after each of them, and a survey's models.

Flower keeps a client's state in memory and for one run only. Here it survives a restart of node and
server. A node does not know whether the server has used its last upload: the server says so with
the next message, and the node goes on from the state after the upload that was used. So two
generations are kept, and a message that comes again gets the same answer without training again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from flwr.app import RecordDict
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_atomically
from ebbflow.core.tensor_files import as_safetensors
from ebbflow.core.types import Examples, State

_STATE = "state/"
_FACTS = "facts"
_PURPOSE = re.compile(r"[a-z]+")
_UPLOAD = re.compile(r"[0-9]+-[0-9]+")


class KeptAnswer(NamedTuple):
    """An answer that was given: what it answers, the reply, and the state after it."""

    question: str
    """The digest of the message, and that of the samples it was answered with."""
    arrays: dict[str, Tensor]
    metrics: dict[str, float]
    state: State


class NodeDisk:
    """The folder of one node, for one federation."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def answer(self, purpose: str, upload: str) -> KeptAnswer | None:
        """Return the answer with which an upload was made, if it is still here and whole."""
        path = self._path(purpose, upload)
        found = _read(path)
        if found is None:
            return None
        facts = _facts(found)
        if facts is None:
            return None
        return KeptAnswer(
            str(facts["question"]),
            {n: t for n, t in found.items() if n != _FACTS and not n.startswith(_STATE)},
            {str(name): float(value) for name, value in facts["metrics"].items()},
            {n.removeprefix(_STATE): t for n, t in found.items() if n.startswith(_STATE)},
        )

    def keep(self, purpose: str, upload: str, answer: KeptAnswer, used: str) -> None:
        """Save an answer, and let go of all but this one and the one that was used."""
        make_folder(self.folder)
        facts = json.dumps({"question": answer.question, "metrics": answer.metrics})
        named = {**answer.arrays, **{_STATE + n: t for n, t in answer.state.items()}}
        named[_FACTS] = torch.frombuffer(bytearray(facts.encode()), dtype=torch.uint8)
        write_atomically(self._path(purpose, upload), as_safetensors(named))
        kept = {self._path(purpose, upload)} | ({self._path(purpose, used)} if used else set())
        for path in self.folder.glob(f"{purpose}-*.safetensors"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def keep_models(self, session: int, models: Mapping[str, Tensor]) -> None:
        """Save the models that a session's survey is about, in place of those of an earlier one."""
        make_folder(self.folder)
        write_atomically(self._models(session), as_safetensors(models))
        for path in self.folder.glob("survey-*.safetensors"):
            if path != self._models(session):
                path.unlink(missing_ok=True)

    def models(self, session: int) -> dict[str, Tensor]:
        """Return the models of a session's survey."""
        found = _read(self._models(session))
        if found is None:
            raise EbbflowError(
                f"the models of the survey of session {session} are not on this node's disk: the "
                "server has to send them again"
            )
        return found

    def _models(self, session: int) -> Path:
        return self.folder / f"survey-{session}.safetensors"

    def _path(self, purpose: str, upload: str) -> Path:
        # Both come in a message, and become part of a file's name.
        if not _PURPOSE.fullmatch(purpose) or not _UPLOAD.fullmatch(upload):
            raise EbbflowError(
                f"the upload {upload!r} for {purpose!r} is not called as uploads are: install the "
                "server's version of ebbflow on this node"
            )
        return self.folder / f"{purpose}-{upload}.safetensors"


def question_digest(content: RecordDict, *, but: str = "used") -> str:
    """Return the digest of a message's content, without the key that says what was used.

    Two messages with the same digest ask for the same thing.
    """
    digest = hashlib.sha256()
    for name, record in sorted(content.array_records.items()):
        for key, array in record.items():
            digest.update(f"{name}/{key} {array.shape} {array.dtype} ".encode())
            digest.update(array.data)
    for name, config in sorted(content.config_records.items()):
        said: dict[str, Any] = {key: value for key, value in config.items() if key != but}
        digest.update(json.dumps([name, sorted(said.items())], default=repr).encode())
    return digest.hexdigest()


def examples_digest(examples: Examples) -> str:
    """Return the digest of what a device trains on."""
    digest = hashlib.sha256(repr(examples.pixels).encode())
    for tensor in (examples.x, examples.y):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{array.shape} {array.dtype} ".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors of a file, or None if it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None


def _facts(found: Mapping[str, Tensor]) -> dict[str, Any] | None:
    if _FACTS not in found:
        return None
    facts: dict[str, Any] = json.loads(bytes(found[_FACTS].tolist()))
    return facts
