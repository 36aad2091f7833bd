"""Event files for TensorBoard: ``tensorboard/ALGORITHM/METHOD/seed-N/`` in the run folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbflow.trackers.tracking import Scalars, TrackedOutcome, TrackedRun, Tracker

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SECONDS = 10
"""Time after which what was logged is in the file."""


class TensorBoardLog(Tracker):
    """Writes a folder of event files for every tracked run."""

    name = library = "tensorboard"

    def open(self) -> None:
        """Get ready to write."""
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - for those who have it

        self._make = SummaryWriter
        self._below = self.own_folder()
        self._writers: dict[TrackedRun, SummaryWriter] = {}

    def begin(self, run: TrackedRun) -> None:
        """Begin a file; what earlier ones of the same tracked run hold does not count any more."""
        where = self._below.joinpath(*run.path.split("/"))
        self._writers[run] = self._make(str(where), purge_step=0, flush_secs=SECONDS)

    def log(self, scalars: Scalars) -> None:
        """Write every number by itself."""
        writer = self._writers[scalars.run]
        for name, value in scalars.values.items():
            writer.add_scalar(name, value, scalars.step)

    def end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        """Close the file."""
        self._writers.pop(run).close()

    def close(self) -> None:
        """Close what is still open."""
        while self._writers:
            self._writers.popitem()[1].close()
