"""Who holds which samples in which session, counted without training anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.config.resolved import Config
from ebbflow.core.errors import unknown
from ebbflow.core.types import Dataset, Session
from ebbflow.data import datasets
from ebbflow.simulation.roster import KINDS, partition_kind, plan_sessions


class Holdings(NamedTuple):
    """The devices of a run, ordered by their first session, and what they hold.

    ``counts[i, l]`` is the number of samples with label l on the device ``devices[i]``, and
    ``present[i, s]`` says whether it is present in session s + 1. ``names[i]`` is what the device
    is called, and ``labels[l]`` the label, where they have names; ``remarks`` are sentences for the
    user, on what was done to the data and on what is odd.
    """

    title: str
    devices: tuple[int, ...]
    counts: NDArray[np.int64]
    present: NDArray[np.bool_]
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def device_name(self, place: int) -> str:
        """Return what a device is called: its name, or else its number."""
        return self.names[place] if self.names else str(self.devices[place])

    def label_name(self, label: int) -> str:
        """Return what a label is called: its name, or else its number."""
        return self.labels[label] if self.labels else str(label)

    @property
    def blocks(self) -> list[int]:
        """The number of devices that first come in the same session, for each such session.

        Under ``schedule.kind = "groups"`` these are the two groups that take turns.
        """
        return [len(list(group)) for _, group in groupby(self.present.argmax(axis=1).tolist())]


def planned_holdings(config: Config, dataset: Dataset | None = None) -> Holdings:
    """Return who will hold what under the first seed of a configuration."""
    kind = config.partition.kind
    if kind not in KINDS:
        raise unknown(kind, KINDS, "partition", "partition.kind")
    if dataset is None:
        dataset = datasets.configured(config.dataset, config.data, task=config.task)
    seed = config.seeds[0]
    title = f"{dataset.name}, {partition_kind(config, dataset)}, seed {seed}"
    plan = plan_sessions(config, dataset, seed)
    counted = count_holdings(title, plan.sessions, dataset)
    names = tuple(plan.names[device] for device in counted.devices) if plan.names else ()
    return counted._replace(names=names, remarks=(*dataset.notes, *plan.warnings))


def count_holdings(title: str, sessions: Sequence[Session], dataset: Dataset) -> Holdings:
    """Count what the devices of some sessions hold; a device holds the same in all of them."""
    y = dataset.train.kinds.cpu().numpy()
    place: dict[int, int] = {}  # in the order of the devices' first sessions
    for session in sessions:
        for device in session.devices:
            place.setdefault(device, len(place))
    counts = np.zeros((len(place), dataset.kind_count), dtype=np.int64)
    present = np.zeros((len(place), len(sessions)), dtype=bool)
    counted = 0
    for column, session in enumerate(sessions):
        rows = [place[device] for device in session.devices]
        present[rows, column] = True
        for row, device in zip(rows, session.devices, strict=True):
            if row >= counted:
                counts[row] = np.bincount(y[session.shards[device]], minlength=dataset.kind_count)
        counted = max(counted, 1 + max(rows, default=-1))
    return Holdings(title, tuple(place), counts, present, labels=dataset.labels)
