"""Trackers: logs of a run for other programs, one file each; `TRACKERS` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ebbflow.core.registry import Registered, Registry

if TYPE_CHECKING:
    from ebbflow.trackers.tracking import Tracker

TRACKERS: Registry[Registered[Tracker]] = Registry("tracker")
"""Trackers by name; the libraries that they need are imported when a run starts."""

for _name, _source in (
    ("csv", "ebbflow.trackers.csv_log:CsvLog"),
    ("tensorboard", "ebbflow.trackers.tensorboard_log:TensorBoardLog"),
    ("wandb", "ebbflow.trackers.wandb_log:WandbLog"),
    ("mlflow", "ebbflow.trackers.mlflow_log:MlflowLog"),
):
    TRACKERS.register(Registered(_name, _source))


def tracker(name: str, folder: Path | str | None = None) -> Tracker:
    """Return a tracker, to be given to a run among its callbacks.

    Args:
        name: csv, tensorboard, wandb or mlflow.
        folder: Where its files go, in a folder of its name; by default into the run folder.

    >>> tracker("csv").name
    'csv'
    """
    return TRACKERS.find(name, "tracker")(None if folder is None else Path(folder))


def named_trackers(texts: list[str], where: str) -> list[Tracker]:
    """Return the trackers of lists of names, comma-separated, each once.

    >>> [tracker.name for tracker in named_trackers(["csv, csv", "csv"], "--log")]
    ['csv']
    """
    names = [part.strip() for text in texts for part in text.split(",")]
    return [TRACKERS.find(name, where)(None) for name in dict.fromkeys(names)]
