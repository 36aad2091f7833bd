"""A shared pool of samples from which any number of devices draw theirs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.types import Indices
from ebbflow.data.partition import rows_of


class Pool:
    """Each device draws its samples from those with its group's labels.

    A device's samples are drawn by its name whenever they are used, so neither memory nor start-up
    time grows with the number of devices; two devices may hold the same sample.
    """

    def __init__(
        self,
        seed: int,
        y: Indices,
        groups: Sequence[tuple[Sequence[int], tuple[int, ...]]],
        samples: int,
    ) -> None:
        self.seed = seed
        self.samples = samples
        self._groups = [(frozenset(devices), labels) for devices, labels in groups]
        self._rows = [np.sort(np.concatenate(rows_of(y, labels))) for _, labels in groups]
        for rows, (_, labels) in zip(self._rows, groups, strict=True):
            if samples > len(rows):
                raise EbbflowError(
                    f"partition.samples = {samples} is more than the {len(rows)} training samples "
                    f"with the labels {list(labels)}: ask for fewer"
                )

    def draw(self, device: int) -> Indices:
        """Return the rows of a device, in ascending order."""
        rows = self._rows[self._group(device)]
        chosen = generator(self.seed, "partition", "pool", device).choice(
            len(rows), self.samples, replace=False, shuffle=False
        )
        return np.asarray(rows[np.sort(chosen)])

    def labels_of(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return the labels that devices may hold."""
        groups = {self._group(device) for device in devices}
        return tuple(sorted({label for group in groups for label in self._groups[group][1]}))

    def _group(self, device: int) -> int:
        return next(i for i, (devices, _) in enumerate(self._groups) if device in devices)
