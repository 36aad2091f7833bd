"""Test samples that are set aside from a user's samples, device by device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator

Array = NDArray[Any]
"""An array whose type is not known yet."""


class HeldOut(NamedTuple):
    """Which samples are for testing, and sentences on how they were chosen."""

    test: NDArray[np.bool_]
    notes: tuple[str, ...]


def held_out(place: str, share: float, labels: Array, owners: Array | None = None) -> HeldOut:
    """Choose a share of the samples for testing; of every owner's samples, where there are owners.

    Every owner with at least two samples has test and training samples, unless that would take a
    label out of the training set: one sample of every label always stays there.

    >>> held_out("x", 0.5, np.zeros(4, int)).test.sum()
    np.int64(2)
    """
    count = len(labels)
    if count < 2:
        raise EbbflowError(
            f"{place} has {count} sample{'' if count == 1 else 's'}, too few to set test samples "
            "aside: give more samples, or test samples of their own with data.test"
        )
    order = generator(0, "test-split").permutation(count)
    groups = np.zeros(count, dtype=np.int64)
    if owners is not None:
        groups = np.unique(owners, return_inverse=True)[1]
    # The first sample of every label, in the order drawn, stays in the training set.
    kept = np.zeros(count, dtype=np.int64)
    kept[order[np.unique(labels[order], return_index=True)[1]]] = 1
    # The samples of each owner side by side: those that may be taken first, in the order drawn.
    order = order[np.lexsort((kept[order], groups[order]))]
    sizes = np.bincount(groups)
    free = sizes - np.bincount(groups, weights=kept).astype(np.int64)
    least, most = np.minimum(1, sizes - 1), np.minimum(sizes - 1, free)
    wanted = np.minimum(np.maximum(np.round(share * sizes), least), most).astype(np.int64)
    rank = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    test = np.zeros(count, dtype=bool)
    test[order] = rank < np.repeat(wanted, sizes)
    if not test.any():
        raise EbbflowError(
            f"{place}: no sample is left for testing, because the first one of every label is for "
            "training: give more samples, or test samples of their own with data.test"
        )
    how = "" if owners is None else f" from each of the {len(sizes)} devices"
    notes = [f"{int(test.sum())} of {count} samples are for testing, drawn at random{how}"]
    untested = int((wanted == 0).sum())
    if untested:
        notes.append(
            f"{untested} devices have no test samples, because they have a single sample, or "
            "labels so rare that all of them are for training"
        )
    return HeldOut(test, tuple(notes))
