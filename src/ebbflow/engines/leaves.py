"""Sums over fixed leaves of neighbouring devices: what lets a round be divided among workers.

The devices of a cohort are cut into leaves of a fixed size, in order. An engine adds up the uploads
of a leaf's devices one by one, and then the leaves' sums in order. Whoever computes a leaf, in this
process or in another one, returns the same sum: the result does not depend on how many workers
there are, nor on which of them is finished first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch

from ebbflow.core.algorithm import Upload, add_up, combine
from ebbflow.core.local import Lane, Trained
from ebbflow.core.types import State

LEAF = 4
"""Devices in a leaf, except for texts in the forms that `engines.texts` adds up."""

LeafSum = Any
"""The sum of a leaf's uploads in one lane: an `Upload`, or what else an engine's total takes."""


class LeafStretch(NamedTuple):
    """Some neighbouring leaves in some lanes.

    ``lanes`` are the numbers of these lanes. For each of them, ``sums`` holds the leaves' sums in
    order, and ``states`` the new states of their devices.
    """

    lanes: tuple[int, ...]
    sums: list[list[LeafSum]]
    states: list[dict[int, State]]


class Total(Protocol):
    """The sum of one lane's leaves."""

    def add(self, sums: Sequence[LeafSum]) -> None:
        """Add some leaves, in their order."""
        ...

    def upload(self) -> Upload:
        """Return the sum."""
        ...


class DenseTotal:
    """A sum of whole uploads."""

    def __init__(self) -> None:
        self._total: Upload | None = None

    def add(self, sums: Sequence[Upload]) -> None:
        """Add some leaves, in their order."""
        for each in sums:
            self._total = add_up(self._total, each)

    def upload(self) -> Upload:
        """Return the sum."""
        assert self._total is not None
        return self._total


def folded(
    lanes: Sequence[Lane],
    stretches: Iterable[LeafStretch],
    total_of: Callable[[Lane, LeafSum], Total],
) -> list[Trained]:
    """Return what a round gives every lane, from its leaves in order.

    ``total_of`` returns an empty total for a lane whose leaves look like the one given.
    """
    totals: dict[int, Total] = {}
    clients: list[dict[int, State]] = [{} for _ in lanes]
    for stretch in stretches:
        for number, sums, states in zip(*stretch, strict=True):
            if number not in totals:
                totals[number] = total_of(lanes[number], sums[0])
            totals[number].add(sums)
            clients[number].update(states)
        del stretch, sums, states  # or they stayed in memory while the next ones are computed
    return [(totals[number].upload(), states) for number, states in enumerate(clients)]


def leaf_sums(
    trained: Iterable[list[tuple[Upload, State]]], devices: Iterable[int]
) -> Iterator[LeafStretch]:
    """Yield the leaves of devices, from the upload and the new state of each in every lane."""
    held: list[Upload] = []
    states: list[dict[int, State]] = []
    count = 0
    for device, in_lanes in zip(devices, trained, strict=True):
        if not count:
            held = [upload for upload, _ in in_lanes]
            states = [{} for _ in in_lanes]
        else:
            # The first two make a new sum, to which the others are added in place.
            add = torch.add if count == 1 else torch.Tensor.add_
            held = [combine(add, a, b) for a, (b, _) in zip(held, in_lanes, strict=True)]
        for known, (_, state) in zip(states, in_lanes, strict=True):
            known[device] = state
        count += 1
        if count == LEAF:
            yield _one_leaf(held, states)
            held, states, count = [], [], 0
    if count:
        yield _one_leaf(held, states)


def _one_leaf(sums: Iterable[LeafSum], states: list[dict[int, State]]) -> LeafStretch:
    leaves = [[each] for each in sums]
    return LeafStretch(tuple(range(len(leaves))), leaves, states)


def split_lanes(
    lanes: Sequence[Lane],
    chosen: Sequence[bool],
    one_way: Callable[[Sequence[Lane]], Iterable[LeafStretch]],
    other_way: Callable[[Sequence[Lane]], Iterable[LeafStretch]],
) -> Iterator[LeafStretch]:
    """Train the chosen lanes one way and the rest the other; yield the leaves of both."""
    for wanted, way in ((True, one_way), (False, other_way)):
        numbers = [number for number, choice in enumerate(chosen) if choice == wanted]
        if numbers:
            leaves = way([lanes[number] for number in numbers])
            yield from map(partial(_renumbered, numbers), leaves)


def _renumbered(numbers: Sequence[int], stretch: LeafStretch) -> LeafStretch:
    return stretch._replace(lanes=tuple(numbers[number] for number in stretch.lanes))
