"""Why cells have failed: one small file for each, which keeps the others from being held up."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, StringConstraints, with_config
from typing_extensions import TypedDict

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder
from ebbflow.core.names import printable, shortened
from ebbflow.runs.records import read_json, write_json
from ebbflow.runs.schemas import checked
from ebbflow.sweeps.claims import hostname, now

FOLDER = "failed"
LEFT = "left"
"""The folder of cells that a worker has left for other machines, with the reason."""
REMEDY = "remove the file, and the cell is tried again"
_Text = Annotated[str, StringConstraints(max_length=100_000)]


@with_config(ConfigDict(extra="forbid", strict=True))
class Failure(TypedDict):
    """Why a cell failed, when and where; ``details`` is the traceback of what is a bug."""

    sentence: _Text
    details: _Text
    when: _Text
    host: _Text


class Failures:
    """The failures of a sweep's cells, in a folder of its own; or why cells were left."""

    def __init__(self, folder: Path, kind: str = FOLDER) -> None:
        self.folder = folder / kind

    def __contains__(self, name: str) -> bool:
        return self._path(name).exists()

    def read(self, name: str) -> Failure | None:
        """Return why a cell failed; None if it has not."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            found: Any = checked(Failure, read_json(path, REMEDY), str(path), REMEDY)
            failure: Failure = found
        except EbbflowError as error:
            failure = Failure(sentence=str(error), details="", when="", host="")
        return failure

    def write(self, name: str, error: BaseException) -> None:
        """Note why a cell cannot be computed; a traceback is kept of what is no user's mistake."""
        make_folder(self.folder)
        details = getattr(error, "details", "")
        if not isinstance(error, EbbflowError):
            details = "".join(traceback.format_exception(error))
        failure = Failure(
            sentence=shortened(printable(sentence_of(error))),
            details=str(details)[-50_000:],
            when=now(),
            host=hostname(),
        )
        write_json(self._path(name), dict(failure))

    def forget(self, name: str) -> bool:
        """Let a cell be tried again; return whether it had failed."""
        there = name in self
        self._path(name).unlink(missing_ok=True)
        return there

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def sentence_of(error: BaseException) -> str:
    """Return what went wrong in a sentence.

    >>> sentence_of(KeyError("a"))
    "a bug, or a plugin's: KeyError: 'a'"
    """
    if isinstance(error, EbbflowError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}; check the path and the disk"
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"a bug, or a plugin's: {said}"
