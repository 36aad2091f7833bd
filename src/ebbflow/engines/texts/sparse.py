"""Texts as the rows of a sparse matrix A [texts, words], and the products that training needs.

A model that averages word vectors sees a text only through its row of A: the weight of each word in
the mean. The features are A E, the gradient of the table E is A^T G, and a step on some texts moves
the features of others by the Gram matrix A A^T. None of these needs memory of the table's size
besides the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from ebbflow.core.types import BagOfWords, Indices

_TEXTS = 2**14  # texts that are made sparse at a time
_COLUMNS = 256  # of a Gram matrix at a time: the words' table of so many texts fits the cache


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix by rows: row i has its ``values`` and ``columns`` from ``starts[i]`` on.

    Indices are int32, which take half the memory and have the faster kernel.
    """

    columns: Tensor
    starts: Tensor
    values: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def product(self, dense: Tensor) -> Tensor:
        """Return this matrix times ``dense [width, d]``; a row's entries are added in order.

        >>> sparse([[0.0, 2.0], [0.0, 0.0]]).product(torch.tensor([[1.0], [3.0]]))
        tensor([[6.],
                [0.]])
        """
        if not len(self.columns):
            return dense.new_zeros(len(self), dense.shape[1])
        return embedding_bag(
            self.columns,
            dense,
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )

    def part(self, first: int, last: int) -> Sparse:
        """Return the rows from ``first`` to just before ``last``."""
        begin, end = int(self.starts[first]), int(self.starts[last])
        starts = self.starts[first : last + 1] - begin
        return Sparse(self.columns[begin:end], starts, self.values[begin:end], self.width)

    def rows(self, wanted: Indices) -> Sparse:
        """Return these rows, in this order."""
        starts = self.starts.numpy()
        begin = starts[wanted]
        lengths = starts[wanted + 1] - begin
        ends = np.zeros(len(wanted) + 1, dtype=np.int32)
        np.cumsum(lengths, out=ends[1:])
        at = np.repeat(begin - ends[:-1], lengths) + np.arange(ends[-1], dtype=np.int32)
        places = torch.from_numpy(at)
        return Sparse(
            self.columns.index_select(0, places),
            torch.from_numpy(ends),
            self.values.index_select(0, places),
            self.width,
        )

    def transposed(self) -> Sparse:
        """Return the transpose; the entries of its rows are in order of this matrix's rows."""
        by_column = _scipy(self.columns, self.starts, self.values, self.width).tocsc()
        return _from_scipy(by_column, len(self))

    def gram(self, other: Sparse) -> Tensor:
        """Return this matrix times the other's transpose, ``[len(self), len(other)]``.

        An entry is a sum over the words of its row, in order, and does not depend on other rows.
        """
        known = np.zeros(self.width, dtype=np.int32)
        used = np.unique(other.columns.numpy())
        known[used] = np.arange(1, len(used) + 1, dtype=np.int32)  # 0: in none of its texts
        words = torch.from_numpy(known)
        mine, theirs = words[self.columns.long()], words[other.columns.long()].long()
        left = Sparse(mine, self.starts, self.values, len(used) + 1)
        gram = self.values.new_empty(len(self), len(other))
        for first in range(0, len(other), _COLUMNS):
            last = min(first + _COLUMNS, len(other))
            begin, end = int(other.starts[first]), int(other.starts[last])
            lengths = other.starts[first : last + 1].diff().long()
            text = torch.repeat_interleave(torch.arange(last - first), lengths)
            table = self.values.new_zeros(len(used) + 1, last - first)
            table[theirs[begin:end], text] = other.values[begin:end]
            gram[:, first:last] = left.product(table)
        return gram


def sparse(matrix: Any) -> Sparse:
    """Return a dense matrix as a sparse one."""
    dense = torch.as_tensor(matrix)
    text, column = dense.nonzero(as_tuple=True)
    starts = torch.zeros(len(dense) + 1, dtype=torch.int32)
    starts[1:] = torch.bincount(text, minlength=len(dense)).cumsum(0)
    return Sparse(column.int(), starts, dense[text, column], dense.shape[1])


def texts_of(bag_of_words: BagOfWords, x: Tensor, dtype: torch.dtype) -> Sparse:
    """Return the matrix A of texts ``x [N, length]``; a word that is repeated is one entry."""
    parts = []
    for first in range(0, len(x), _TEXTS):
        some = x[first : first + _TEXTS]
        shares = bag_of_words.shares(some, dtype)
        counts = shares != 0
        starts = torch.zeros(len(some) + 1, dtype=torch.int32)
        starts[1:] = counts.sum(1).cumsum(0)
        matrix = _scipy(some[counts].int(), starts, shares[counts], bag_of_words.vocabulary)
        matrix.sum_duplicates()
        parts.append(_from_scipy(matrix, bag_of_words.vocabulary))
    before = np.cumsum([0] + [len(part.columns) for part in parts])
    if before[-1] >= 2**31:
        raise OverflowError(f"{before[-1]} words in one data set")
    ends = [part.starts[1:] + int(at) for part, at in zip(parts, before[:-1], strict=True)]
    nothing = torch.zeros(0, dtype=torch.int32)
    return Sparse(
        torch.cat([nothing, *(part.columns for part in parts)]),
        torch.cat([torch.zeros(1, dtype=torch.int32), *ends]),
        torch.cat([nothing.to(dtype), *(part.values for part in parts)]),
        bag_of_words.vocabulary,
    )


def _scipy(columns: Tensor, starts: Tensor, values: Tensor, width: int) -> Any:
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import; only texts need it

    arrays: tuple[NDArray[Any], ...] = (values.numpy(), columns.numpy(), starts.numpy())
    return csr_array(arrays, shape=(len(starts) - 1, width))


def _from_scipy(matrix: Any, width: int) -> Sparse:
    columns = torch.from_numpy(matrix.indices.astype(np.int32, copy=False))
    starts = torch.from_numpy(matrix.indptr.astype(np.int32, copy=False))
    return Sparse(columns, starts, torch.from_numpy(matrix.data), width)
