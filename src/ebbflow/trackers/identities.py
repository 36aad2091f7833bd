"""What a tracking service calls each tracked run, kept in the run folder for when it goes on."""

from __future__ import annotations

from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder
from ebbflow.core.names import is_name
from ebbflow.runs import records
from ebbflow.trackers.tracking import TrackedRun

FILE = "runs.json"


class Identities:
    """Names that a service gave to tracked runs, and which of these are complete.

    Without a folder nothing is kept: a run in memory does not go on.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / FILE
        self._known: dict[str, tuple[str, bool]] = {}
        if self._path is not None and self._path.exists():
            for path, facts in records.read_json(self._path).items():
                if not isinstance(facts, dict) or not is_name(facts.get("id")):
                    raise EbbflowError(
                        f"{self._path} does not say what {path} is called: delete the file, and "
                        "the run is logged as a new one"
                    )
                self._known[path] = facts["id"], facts.get("complete") is True

    def find(self, run: TrackedRun) -> str | None:
        """Return what a tracked run is called, if it has begun before."""
        known = self._known.get(run.path)
        return None if known is None else known[0]

    def is_complete(self, run: TrackedRun) -> bool:
        """Whether a tracked run has come to its end."""
        return self._known.get(run.path, ("", False))[1]

    def note(self, run: TrackedRun, name: str, *, complete: bool = False) -> None:
        """Take note of what a tracked run is called, and whether that was all of it."""
        self._known[run.path] = name, complete
        if self._path is not None:
            make_folder(self._path.parent)
            records.write_json(
                self._path,
                {path: {"id": id_, "complete": done} for path, (id_, done) in self._known.items()},
            )
