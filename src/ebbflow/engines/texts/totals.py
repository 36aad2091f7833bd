"""Sums of uploads of a text model, whose vectors are added up by name and in place.

Devices are added up in leaves of `TEXT_LEAF`, and leaves in order. What a leaf adds to a table is
known by the rows that its texts touch (`WordRows`), or by what these are computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebbflow.core.algorithm import Upload
from ebbflow.core.types import BagOfWords

TEXT_LEAF = 16
"""Devices in a leaf: those whose coefficients are summed in one product."""

DELTA = ""
"""The name of an upload's displacement among its vectors."""


def apart(
    upload: Upload, is_vector: Callable[[Any], bool]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split an upload into its vectors and everything else, both by name."""
    extras = upload.extras
    vectors = {name: value for name, value in extras.items() if is_vector(value)}
    rest = {"extras/" + name: value for name, value in extras.items() if name not in vectors}
    rest |= {"buffers": upload.buffers, "samples": upload.samples, "devices": upload.devices}
    return {DELTA: upload.delta, **vectors}, rest


class WordRows(NamedTuple):
    """The rows of a table that a leaf touches: these words, in ascending order."""

    words: Tensor
    rows: Tensor

    def add_to(self, table: Tensor, first: int, last: int) -> None:
        """Add the rows of a range of words to a table."""
        begin, end = torch.searchsorted(self.words, self.words.new_tensor([first, last])).tolist()
        # No word occurs twice, so that this is a sum; index_add_ goes row by row.
        words = self.words[begin:end]
        table[words] = table[words].add_(self.rows[begin:end])

    def inner_ends(self, count: int) -> list[int]:
        """Return where ``count`` ranges of words meet of which about equally many are touched."""
        touched = len(self.words)
        return [int(self.words[touched * n // count]) for n in range(1, count)] if touched else []


class SmallParts(NamedTuple):
    """What an upload, or a sum of some, has besides tables: tails of vectors, and all the rest."""

    tails: dict[str, Tensor]
    rest: dict[str, Tensor]


def small_sum(parts: Iterable[SmallParts]) -> SmallParts:
    """Return the sum of what some devices send besides tables, added up in order."""
    tails: dict[str, Tensor] = {}
    rest: dict[str, Tensor] = {}
    for part in parts:
        for total, more in ((tails, part.tails), (rest, part.rest)):
            for name, value in more.items():
                total[name] = total[name] + value if name in total else value
    return SmallParts(tails, rest)


class UploadTotal:
    """The sum of one lane's uploads."""

    def __init__(self, bag_of_words: BagOfWords) -> None:
        self.vectors: dict[str, Tensor] = {}
        self._size = bag_of_words.vocabulary * bag_of_words.width
        self._width = bag_of_words.width
        self._rest: dict[str, Tensor] = {}

    def table(self, name: str) -> Tensor:
        """Return the table of a named vector, to add to."""
        return self.table_of(self.vectors[name])

    def table_of(self, vector: Tensor) -> Tensor:
        """Return the table of any whole vector."""
        return vector[: self._size].view(-1, self._width)

    def add_small(self, small: SmallParts) -> None:
        """Add a leaf except for its tables."""
        for name, value in small.rest.items():
            self._rest[name] = self._rest[name] + value if name in self._rest else value
        for name, tail in small.tails.items():
            if name not in self.vectors:
                self.vectors[name] = tail.new_zeros(self._size + len(tail))
            self.vectors[name][self._size :].add_(tail)

    def upload(self) -> Upload:
        """Return the sum."""
        extras = {name: vector for name, vector in self.vectors.items() if name != DELTA}
        plain = {n.removeprefix("extras/"): v for n, v in self._rest.items() if "/" in n}
        return Upload(
            self.vectors[DELTA],
            self._rest["buffers"],
            self._rest["samples"],
            self._rest["devices"],
            {**extras, **plain},
        )
