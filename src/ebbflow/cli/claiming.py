"""A folder for a new run, which is taken away again if the run is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ebbflow.config.resolved import Config


class NewFolder:
    """The folder of a run that is about to begin.

    As a context it removes the folder if the run ends before anything was computed, with those
    above it that were made for it. What was there before stays.
    """

    def __init__(self, path: Path) -> None:
        self._path, whole = path, path.absolute()
        self._missing = [f for f in (whole, *whole.parents) if not f.exists()]
        empty = path.is_dir() and not any(path.iterdir())
        self._ours = bool(self._missing) or empty

    def claim(self, config: Config) -> None:
        """Make the folder, with the run's configuration; raise an error if it is in use."""
        from ebbflow.runs.records import claim_folder

        claim_folder(self._path, config.model_dump())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if error is not None:
            self.take_back(interrupted=not isinstance(error, Exception))

    def take_back(self, *, interrupted: bool) -> None:
        """Remove the folder, unless something has been computed.

        A run that was interrupted is kept as soon as it is planned: it was not refused.
        """
        from ebbflow.core.files import TEMPORARY
        from ebbflow.runs import records

        worth = {records.METRICS, records.EVENTS, records.SUMMARY}
        worth |= {records.ENVIRONMENT} if interrupted else set()
        if any((self._path / name).exists() for name in worth):
            return
        ours = {records.CONFIG, records.ENVIRONMENT, records.LOCK, records.LOG}
        with suppress(OSError):
            here = self._ours and self._path.is_dir()
            for entry in list(self._path.iterdir()) if here else ():
                if entry.name in ours or TEMPORARY.fullmatch(entry.name):
                    entry.unlink(missing_ok=True)
            if self._ours and not self._missing:  # an empty folder was there before
                self._path.mkdir(exist_ok=True)
        for folder in self._missing:  # the innermost first
            with suppress(OSError):  # it is not empty, or was never made
                folder.rmdir()
