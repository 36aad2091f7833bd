"""Sums of uploads of a text model, whose vectors are added up by name and in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ebbflow.core.algorithm import Upload
from ebbflow.core.types import BagOfWords

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

    def add_small(self, tails: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        """Add one device's upload except for its tables."""
        for name, value in rest.items():
            self._rest[name] = self._rest[name] + value if name in self._rest else value
        for name, tail in tails.items():
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
