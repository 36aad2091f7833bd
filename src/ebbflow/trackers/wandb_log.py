"""Weights & Biases: one of its runs for each tracked run, in one group; files in ``wandb/``.

Its own variables hold: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_GROUP, WANDB_SILENT and
others. It cannot go on with a run that was logged offline: what it is sent later under the same
name replaces what came before. So offline everything is logged again, into a new folder.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from ebbflow.trackers.identities import Identities
from ebbflow.trackers.tracking import Scalars, TrackedOutcome, TrackedRun, Tracker

if TYPE_CHECKING:
    import wandb

PROJECT = "ebbflow"


class WandbLog(Tracker):
    """Logs to Weights & Biases, or into its files if WANDB_MODE is offline."""

    name = library = "wandb"

    def open(self) -> None:
        """Get ready to log; nothing is sent yet."""
        self._runs: dict[TrackedRun, wandb.Run] = {}
        self._identities = Identities(None if self.folder is None else self.folder / self.name)
        self._group = f"run-{secrets.token_hex(4)}" if self.folder is None else self.folder.name

    def is_complete(self, run: TrackedRun) -> bool:
        """Whether everything was logged before."""
        return self._identities.is_complete(run)

    def begin(self, run: TrackedRun) -> None:
        """Begin one of its runs, or go on with it."""
        import wandb  # noqa: PLC0415 - for those who have it

        name = self._identities.find(run)
        if name is None:
            name = secrets.token_hex(4)
            self._identities.note(run, name)
        if self.place is not None:
            self.own_folder()
        try:
            self._runs[run] = wandb.init(
                dir=self.place,
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                group=os.environ.get("WANDB_RUN_GROUP", self._group),
                name=run.title,
                id=name,
                config=self.settings_of(run),
                resume="allow",
                reinit="create_new",  # methods are run side by side
                settings=wandb.Settings(
                    console="off",  # or it would take hold of the progress display
                    silent=os.environ.get("WANDB_SILENT", "true").lower() in ("1", "true"),
                    symlink=False,
                ),
            )
        finally:
            self._remove_links()

    def log(self, scalars: Scalars) -> None:
        """Log numbers, unless they were logged before."""
        run = self._runs[scalars.run]
        if scalars.step >= run.step:
            run.log(scalars.values, step=scalars.step)

    def end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        """End one of its runs; a method that could not go on counts as failed."""
        over = self._runs.pop(run)
        over.finish(exit_code=0 if outcome == "finished" else 1)
        if outcome in ("finished", "ended"):
            self._identities.note(run, over.id, complete=True)

    def close(self) -> None:
        """End what is still open."""
        while self._runs:
            self._runs.popitem()[1].finish(exit_code=1)

    def _remove_links(self) -> None:
        """Remove links to a log that it keeps elsewhere: a run folder holds only plain files."""
        if self.place is not None:
            for path in self.own_folder().glob("*/logs/*"):
                if path.is_symlink():
                    path.unlink()
