"""Trains devices on coefficients of their own texts, without dense copies of the table.

A model that averages word vectors has the features Z = A E, with A [n, words] the sparse matrix of
a device's n texts and E the table. Every gradient of the table is A^T G, so local training stays in
the span of the device's texts and of the vectors that were given:

    E_h = sum_v t_h[v] v - A^T M_h,    velocity_h = sum_v r_h[v] v + A^T U_h,

with v the broadcast table and whatever else an algorithm's direction adds (SCAFFOLD's c and c_k,
FedDyn's h_k). With direction = slope g + pull theta + shift a step is

    z = sum_v t_h[v] (A v)_B - K_B M_h,    K = A A^T,
    U <- momentum U + slope G - pull M,    M <- M + eta U,

and scalar recursions for t and r (`symbolic`). The classifier, a small tail, is stepped
as it is. The sum over devices of D_k A_k^T M_k is one sparse product for every sixteen devices.
Equal to the dense round up to rounding, and nothing of the table's size belongs to a device.

What devices remember: SCAFFOLD's c_k and FedDyn's h_k as coefficients, MOON's previous model as its
features of the device's own texts (`packed_states`). Gram matrices are kept between rounds, up to
`GRAM_BYTES`.

Four kinds of lanes are trained on the rows that a device touches (`row_sparse`) or else on whole
vectors: algorithms with a hook that is not linear in its vectors; those whose devices remember
whole models and use more of them than their outputs; MOON where a `Cohort` does not say which texts
a device has; and any with `local.radius`, which needs the length of the whole vector. The choice
depends on the algorithm and is the same for all devices and rounds.

The result does not depend on how the work is divided: each device is computed alone, and each row
of a table is summed over devices in order, in leaves of sixteen, whichever worker does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.algorithm import Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import Tally, tally
from ebbflow.core.local import Cohort, Lane, Recipe, Route
from ebbflow.core.types import BagOfWords, Examples, Indices, Model, ModelState, State
from ebbflow.engines.failures import failures_named, place_of
from ebbflow.engines.leaves import LeafStretch, LeafSum, Total, split_lanes
from ebbflow.engines.texts.coefficients import DeviceRound, SpanUpload
from ebbflow.engines.texts.combination import NotLinearError
from ebbflow.engines.texts.device_texts import DeviceTexts, Grams
from ebbflow.engines.texts.row_sparse import RowSparse
from ebbflow.engines.texts.sparse import Sparse, texts_of
from ebbflow.engines.texts.symbolic import CLIENT, SENT, SHARED, SymbolicHooks, linear_hooks
from ebbflow.engines.texts.totals import (
    TEXT_LEAF,
    SmallParts,
    UploadTotal,
    WordRows,
    small_sum,
)

RANGES = 16  # parts of the table that are summed separately
GRAM_BYTES = 512 * 2**20  # of Gram matrices that are kept between rounds
WINDOW_BYTES = 128 * 2**20  # of coefficients that wait to be summed


class SampleSpace(RowSparse):
    """Trains a cohort on coefficients of its texts; see the module's text.

    Args:
        model: A model that averages word vectors (`EngineHints.bag_of_words`).
        examples: The training set, on the CPU.
        recipe: Momentum and projection.
        workers: Threads, each of which computes on one core; by default one per core.
    """

    def __init__(
        self, model: Model, examples: Examples, recipe: Recipe, workers: int | None = None
    ) -> None:
        super().__init__(model, examples, recipe, workers)
        self.examples = examples
        self._texts: dict[torch.dtype, Sparse] = {}
        self._tests: tuple[Tensor, torch.dtype, Sparse] | None = None
        self._grams = Grams(GRAM_BYTES)

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Train the lanes outside the sample space again; in it, every device is checked."""
        others = [lane for lane in lanes if isinstance(self._linear(lane, cohort), str)]
        if others:
            super().explain(others, cohort)

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return how the lane is trained, and why not in the sample space."""
        reason = self._linear(lane, cohort)
        if not isinstance(reason, str):
            return Route("sample space")
        other = super().route(lane, cohort)
        if other.path == "touched rows" or other.reason == reason:
            return Route(other.path, reason)
        return Route(other.path, f"{reason}; {other.reason}")

    def leaves(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        """Train lanes in the sample space if their hooks allow it, and yield the leaves' sums."""
        hooks = [self._linear(lane, cohort) for lane in lanes]
        linear = [each for each in hooks if not isinstance(each, str)]
        return split_lanes(
            lanes,
            [not isinstance(each, str) for each in hooks],
            lambda _: self._in_sample_space(linear, cohort),
            partial(super().leaves, cohort=cohort),
        )

    def portable(self, stretch: LeafStretch) -> LeafStretch:
        """Return leaves by the rows that they touch, which need neither texts nor coefficients."""
        return stretch._replace(
            sums=[list(self._pool.map(_by_rows, leaves)) for leaves in stretch.sums]
        )

    def _total(self, lane: Lane, like: LeafSum) -> Total:
        if isinstance(like, SpanLeaf):
            return _SpanTotal(self.bag_of_words, lane, self._pool)
        return super()._total(lane, like)

    def _linear(self, lane: Lane, cohort: Cohort) -> SymbolicHooks | str:
        """Return a lane's hooks if they are linear, else the reason why they are not."""
        classes, shards_known = self.model.layout.shapes[-1][0], len(cohort.shards) > 0
        with failures_named(lambda: f"{place_of(cohort)}, {lane.algorithm.name}"):
            try:
                return linear_hooks(lane, self.recipe, self.bag_of_words, classes, shards_known)
            except NotLinearError as error:
                return str(error)

    def _counting(
        self, models: Sequence[ModelState], test: Examples
    ) -> Callable[[ModelState, range], Tally]:
        texts = self._test_texts(test.x, models[0].theta.dtype)
        return lambda model, rows: self._count(model.theta, texts, test.y, rows)

    def _count(self, theta: Tensor, texts: Sparse, y: Tensor, rows: range) -> Tally:
        """Return what these texts add to a model's score."""
        size = self.bag_of_words.vocabulary * self.bag_of_words.width
        table = theta[:size].view(self.bag_of_words.vocabulary, self.bag_of_words.width)
        features = texts.part(rows.start, rows.stop).product(table)
        logits, labels = self.bag_of_words.head(theta[size:], features), y[rows.start : rows.stop]
        return tally(self.model.task, logits, labels)

    def _train_texts(self, dtype: torch.dtype) -> Sparse:
        if dtype not in self._texts:
            self._texts = {dtype: texts_of(self.bag_of_words, self.examples.x, dtype)}
            self._grams = Grams(GRAM_BYTES)
        return self._texts[dtype]

    def _test_texts(self, x: Tensor, dtype: torch.dtype) -> Sparse:
        if self._tests is None or self._tests[0] is not x or self._tests[1] != dtype:
            self._tests = x, dtype, texts_of(self.bag_of_words, x, dtype)
        return self._tests[2]

    # --- a round --------------------------------------------------------------------------------

    def _in_sample_space(
        self, hooks: Sequence[SymbolicHooks], cohort: Cohort
    ) -> Iterator[LeafStretch]:
        """Train a cohort in lanes whose hooks are linear."""
        texts = self._train_texts(hooks[0].like.dtype)
        windows = self._whole_leaves(cohort, len(hooks))
        # Nothing here holds a window's leaves while the next one is trained.
        return map(partial(self._window, hooks, cohort, texts), windows)

    def _window(
        self, hooks: Sequence[SymbolicHooks], cohort: Cohort, texts: Sparse, window: range
    ) -> LeafStretch:
        trained = list(self._pool.map(partial(self._device, hooks, cohort, texts), window))
        devices = [cohort.devices[place] for place in window]
        by_lane = [list(zip(*of_lane, strict=True)) for of_lane in zip(*trained, strict=True)]
        return LeafStretch(
            tuple(range(len(hooks))),
            self._span_leaves([sent for sent, _ in by_lane], texts),
            [dict(zip(devices, states, strict=True)) for _, states in by_lane],
        )

    def _whole_leaves(self, cohort: Cohort, lanes: int) -> Iterator[range]:
        """Divide the cohort into windows of whole leaves, on which the sums do not depend."""
        largest = int(np.argmax(cohort.samples))
        texts = max(1, sum(map(len, cohort.batches[largest])))
        leaf_bytes = 2 * TEXT_LEAF * lanes * texts * self.bag_of_words.width * 4
        size = TEXT_LEAF * max(1, WINDOW_BYTES // leaf_bytes)
        for first in range(0, len(cohort.devices), size):
            yield range(first, min(first + size, len(cohort.devices)))

    def _device(
        self, hooks: Sequence[SymbolicHooks], cohort: Cohort, texts: Sparse, place: int
    ) -> list[tuple[SpanUpload, State]]:
        """Train one device in every lane, on texts and Gram matrices that the lanes share."""
        device = cohort.devices[place]
        where = place_of(cohort, device)
        shard = cohort.shards[place] if len(cohort.shards) else None
        own = DeviceTexts(cohort.batches[place], shard, texts, self.examples.y, self._grams)
        samples = torch.tensor(cohort.weight(place)).to(hooks[0].like)
        return [self._device_in_lane(each, own, device, samples, where) for each in hooks]

    def _device_in_lane(
        self, hooks: SymbolicHooks, texts: DeviceTexts, device: int, samples: Tensor, where: str
    ) -> tuple[SpanUpload, State]:
        training = DeviceRound(self.bag_of_words, hooks, texts, hooks.lane.clients.get(device))

        def reached() -> str:
            done = training.step > len(texts.steps)
            return f"{where}, after the last step" if done else f"{where}, step {training.step}"

        with failures_named(reached):
            try:
                return training.trained(samples, where)
            except NotLinearError as error:
                raise EbbflowError(
                    f"{where}: {error}, though it is for others with other steps, samples or "
                    'states: use engine.kind = "sequential"'
                ) from error

    def _span_leaves(
        self, sent: Sequence[Sequence[SpanUpload]], texts: Sparse
    ) -> list[list[SpanLeaf]]:
        """Return, for every lane, the leaves of what a window's devices sent."""
        transposed: dict[bytes, Future[Sparse]] = {}
        in_lanes = []
        for uploads in sent:
            leaves = [
                uploads[first : first + TEXT_LEAF] for first in range(0, len(uploads), TEXT_LEAF)
            ]
            made = [_without_tables(leaf) for leaf in leaves]
            for name in list(uploads[0].sums):
                stacks = []
                for leaf in leaves:
                    # Popped, so that it is released before the other lanes are stacked.
                    sums = [upload.sums.pop(name) for upload in leaf]
                    rows = np.concatenate([one.rows for one in sums])
                    key = rows.tobytes()
                    if key not in transposed:
                        transposed[key] = self._pool.submit(_by_word, texts, rows)
                    stacks.append((transposed[key], [one.coefficients for one in sums]))
                for one, stack in zip(made, self._pool.map(_stacked, stacks), strict=True):
                    one.tables[name] = stack
            in_lanes.append(made)
        return in_lanes


def _by_word(texts: Sparse, rows: Indices) -> Sparse:
    return texts.rows(rows).transposed()


def _stacked(leaf: tuple[Future[Sparse], list[Tensor]]) -> StackedTexts:
    matrix, coefficients = leaf
    return StackedTexts(matrix.result(), torch.cat(coefficients))


# --- leaves --------------------------------------------------------------------------------------


class StackedTexts(NamedTuple):
    """What a leaf adds to a table: A^T coefficients, with ``by_word`` A^T of all its texts."""

    by_word: Sparse
    coefficients: Tensor

    def add_to(self, table: Tensor, first: int, last: int) -> None:
        """Add the rows of a range of words to a table."""
        if first < last:
            table[first:last].add_(self.by_word.part(first, last).product(self.coefficients))

    def inner_ends(self, count: int) -> list[int]:
        """Return where ``count`` ranges of words meet that have about equally many entries."""
        entries = np.linspace(0, len(self.by_word.columns), count + 1)[1:-1]
        inner: list[int] = np.searchsorted(self.by_word.starts.numpy(), entries).tolist()
        return inner

    def by_rows(self) -> WordRows:
        """Return the rows themselves, of the words that occur."""
        columns, starts, values, width = (
            getattr(self.by_word, name) for name in ("columns", "starts", "values", "width")
        )
        words = starts.diff().nonzero().squeeze(1)
        touched = torch.cat([starts[words], starts[-1:]])
        rows = Sparse(columns, touched, values, width).product(self.coefficients)
        return WordRows(words, rows)


class SpanLeaf(NamedTuple):
    """A leaf's sum by the names of the vectors that are sent: tables, and what is added to them.

    ``multiples`` are of vectors that were broadcast, by name; ``wholes`` are sums of multiples of
    whole vectors that devices remember from another engine.
    """

    tables: dict[str, StackedTexts | WordRows]
    small: SmallParts
    multiples: dict[str, dict[str, float]]
    wholes: dict[str, Tensor]


def _without_tables(sent: Sequence[SpanUpload]) -> SpanLeaf:
    """Return the sum of what some devices send, except for the tables of their own texts."""
    small = small_sum(
        SmallParts({name: one.tail for name, one in upload.sums.items()}, upload.rest)
        for upload in sent
    )
    multiples: dict[str, dict[str, float]] = {}
    wholes: dict[str, Tensor] = {}
    for upload in sent:
        for name, one in upload.sums.items():
            by_name = multiples.setdefault(name, {})
            for vector, (entries, multiple) in one.wholes.items():
                if vector.startswith(CLIENT):
                    mine = entries * multiple
                    wholes[name] = wholes[name].add_(mine) if name in wholes else mine
                else:
                    by_name[vector] = by_name.get(vector, 0.0) + multiple
    return SpanLeaf({}, small, multiples, wholes)


def _by_rows(leaf: LeafSum) -> LeafSum:
    if not isinstance(leaf, SpanLeaf):
        return leaf
    tables: dict[str, StackedTexts | WordRows] = {
        name: table.by_rows() if isinstance(table, StackedTexts) else table
        for name, table in leaf.tables.items()
    }
    return leaf._replace(tables=tables)


class _SpanTotal(UploadTotal):
    """The sum of one lane's leaves; multiples of whole vectors are added at the end."""

    def __init__(self, bag_of_words: BagOfWords, lane: Lane, pool: Executor) -> None:
        super().__init__(bag_of_words)
        extras = lane.shared.extras
        self._named = {SENT: lane.shared.theta} | {SHARED + n: v for n, v in extras.items()}
        self._pool = pool
        self._multiples: dict[str, dict[str, float]] = {}
        self._wholes: dict[str, Tensor] = {}

    def add(self, sums: Sequence[SpanLeaf]) -> None:
        """Add some leaves, in their order; ranges of words are added side by side."""
        for leaf in sums:
            self.add_small(leaf.small)
            for name, multiples in leaf.multiples.items():
                so_far = self._multiples.setdefault(name, {})
                for vector, multiple in multiples.items():
                    so_far[vector] = so_far.get(vector, 0.0) + multiple
            for name, whole in leaf.wholes.items():
                known = self._wholes.get(name)
                self._wholes[name] = whole if known is None else known + whole
        for name in sums[0].tables:
            table = self.table(name)
            tables = [leaf.tables[name] for leaf in sums]
            ends = [0, *tables[0].inner_ends(RANGES), len(table)]
            list(self._pool.map(partial(_add_words, table, tables), ends[:-1], ends[1:]))

    def upload(self) -> Upload:
        """Return the sum."""
        for name, multiples in self._multiples.items():
            for vector, multiple in multiples.items():
                self.table(name).add_(self.table_of(self._named[vector]), alpha=multiple)
        for name, whole in self._wholes.items():
            self.table(name).add_(self.table_of(whole))
        return super().upload()


def _add_words(
    table: Tensor, leaves: Sequence[StackedTexts | WordRows], first: int, last: int
) -> None:
    """Add what each leaf has for the words of a range, leaf by leaf."""
    for leaf in leaves:
        leaf.add_to(table, first, last)
