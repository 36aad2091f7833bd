"""A shared pool of samples from which any number of devices draw theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.types import Indices
from ebbflow.data.partition import rows_of

KEPT_BYTES = 8 * 2**20


class Pool:
    """Each device draws its samples from those with its group's labels.

    A device's samples are drawn by its name whenever they are used, so neither memory nor start-up
    time grows with the number of devices; two devices may hold the same sample. The rows of the
    first devices are kept, up to `KEPT_BYTES`: in a small session, nothing is drawn twice.

    Args:
        seed: the run's seed.
        y: the label of every training sample.
        labels: the labels of each group.
        group_of: the place in ``labels`` of a device's group.
        samples: how many samples every device draws.
    """

    def __init__(
        self,
        seed: int,
        y: Indices,
        labels: Sequence[tuple[int, ...]],
        group_of: Callable[[int], int],
        samples: int,
    ) -> None:
        self.seed = seed
        self.samples = samples
        self._labels = labels
        self._group_of = group_of
        self._kept: dict[int, Indices] = {}
        self._rows = [np.sort(np.concatenate(rows_of(y, group))) for group in labels]
        for rows, group in zip(self._rows, labels, strict=True):
            if samples > len(rows):
                raise EbbflowError(
                    f"partition.samples = {samples} is more than the {len(rows)} training samples "
                    f"with the labels {list(group)}: ask for fewer"
                )

    def draw(self, device: int) -> Indices:
        """Return the rows of a device, in ascending order; they are not to be changed."""
        kept = self._kept.get(device)
        if kept is not None:
            return kept
        rows = self._rows[self._group_of(device)]
        chosen = generator(self.seed, "partition", "pool", device).choice(
            len(rows), self.samples, replace=False, shuffle=False
        )
        drawn = np.asarray(rows[np.sort(chosen)])
        if (len(self._kept) + 1) * drawn.nbytes <= KEPT_BYTES:
            self._kept[device] = drawn
        return drawn

    def labels_of(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return the labels that devices may hold."""
        groups: set[int] = set()
        for device in devices:
            groups.add(self._group_of(device))
            if len(groups) == len(self._labels):
                break
        return tuple(sorted({label for group in groups for label in self._labels[group]}))
