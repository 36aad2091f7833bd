"""The texts that a device trains on in a round: their matrix, Gram matrices and steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Batch
from ebbflow.core.types import Indices
from ebbflow.engines.texts.sparse import Sparse

WIDER = 2  # a shard's Gram matrix is kept if it has at most so many times the round's texts


class Grams:
    """Gram matrices of devices' texts, kept between rounds up to a number of bytes.

    The least recently used one is dropped first.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._lock = Lock()

    def of(self, rows: Indices, texts: Sparse) -> Tensor:
        """Return A A^T of these rows."""
        key = rows.tobytes()
        with self._lock:
            gram = self._kept.get(key)
            if gram is not None:
                self._kept.move_to_end(key)
                return gram
        mine = texts.rows(rows)
        gram = mine.gram(mine)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = gram
                self._held += gram.nbytes
            while self._held > self._limit:
                _, dropped = self._kept.popitem(last=False)
                self._held -= dropped.nbytes
        return gram


class TextStep(NamedTuple):
    """One mini-batch, by the places of its texts among the round's.

    The round's texts are in order of first use: the first ``before`` of them occur in earlier
    steps, the first ``after`` in steps up to this one. ``at`` are the places of this step's texts,
    a slice if all of them are new and in order.
    """

    at: slice | Tensor
    before: int
    after: int
    batch: Batch

    def of(self, rows: Tensor) -> Tensor:
        """Return the rows of the step's texts."""
        return rows[self.at] if isinstance(self.at, slice) else rows.index_select(0, self.at)


class TextRows(NamedTuple):
    """Some texts: their rows in the training set, and their matrix A."""

    rows: Indices
    matrix: Sparse


class DeviceTexts:
    """The texts of a device in a round, the same in all lanes: matrices and steps."""

    def __init__(
        self,
        batches: Sequence[Indices],
        shard: Indices | None,
        texts: Sparse,
        labels: Tensor,
        grams: Grams,
    ) -> None:
        flat = np.concatenate([*batches, np.zeros(0, dtype=np.int64)])
        distinct, first, place = np.unique(flat, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        rows = distinct[order]
        self._all, self._grams = texts, grams
        self._shard = None if shard is None else np.unique(shard)
        self.own = TextRows(rows, texts.rows(rows))
        self.rows = torch.from_numpy(rows)
        y = labels[self.rows]
        self.steps = list(_steps([len(b) for b in batches], rank[place], y, texts.values))
        self._known: dict[bytes, Tensor] = {}
        self._whole_shard: TextRows | None = None

    @property
    def shard(self) -> TextRows:
        """All texts of the device."""
        if self._whole_shard is None:
            if self._shard is None:
                raise EbbflowError("the cohort does not say which texts its devices have")
            # Both hold distinct rows, and the round's are among the shard's.
            same = len(self._shard) == len(self.own.rows)
            self._whole_shard = (
                self.own if same else TextRows(self._shard, self._all.rows(self._shard))
            )
        return self._whole_shard

    def transposed(self, rows: Indices, coefficients: Tensor) -> Tensor:
        """Return A^T coefficients of these rows: a whole table."""
        return self._all.rows(rows).transposed().product(coefficients)

    def gram(self, of: TextRows, others: Indices) -> Tensor:
        """Return the products of the rows of A of some texts and of others, ``[texts, others]``."""
        key = (b"own" if of is self.own else b"shard") + others.tobytes()
        if key not in self._known:
            self._known[key] = self._gram(of, others)
        return self._known[key]

    def _gram(self, of: TextRows, others: Indices) -> Tensor:
        shard = self._shard
        if shard is not None and len(shard) <= WIDER * len(self.own.rows):
            left, right = places(of.rows, shard), places(others, shard)
            if left is not None and right is not None:
                gram = self._grams.of(shard, self._all)
                if of.rows is not shard:
                    gram = gram.index_select(0, left)
                return gram.index_select(1, right)
        return of.matrix.gram(self._all.rows(others))


def _steps(sizes: Sequence[int], places: Indices, y: Tensor, like: Tensor) -> Iterable[TextStep]:
    begin = seen = 0
    for size in sizes:
        mine = places[begin : begin + size]
        begin += size
        after = max(seen, int(mine.max()) + 1)
        new = after - seen == size and bool((mine == np.arange(seen, after)).all())
        at = slice(seen, after) if new else torch.from_numpy(mine)
        weights = like.new_full((size,), 1 / size)
        yield TextStep(at, seen, after, Batch(like, y[at], weights))
        seen = after


def places(rows: Indices, among: Indices) -> Tensor | None:
    """Return the places of the rows in a sorted array, or None if one of them is missing."""
    if not len(among):
        return None if len(rows) else torch.zeros(0, dtype=torch.int64)
    at = np.searchsorted(among, rows).clip(max=len(among) - 1)
    return torch.from_numpy(at) if bool((among[at] == rows).all()) else None
