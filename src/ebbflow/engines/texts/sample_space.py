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
from concurrent.futures import Future
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.algorithm import Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import Score, Tally, parts, score, tally
from ebbflow.core.local import Cohort, Lane, Recipe, Route, Trained
from ebbflow.core.types import BagOfWords, Examples, Indices, Model, ModelState, State
from ebbflow.engines.failures import failures_named, place_of
from ebbflow.engines.texts.coefficients import DeviceRound, SpanUpload
from ebbflow.engines.texts.combination import NotLinearError
from ebbflow.engines.texts.device_texts import DeviceTexts, Grams
from ebbflow.engines.texts.row_sparse import RowSparse
from ebbflow.engines.texts.sparse import Sparse, texts_of
from ebbflow.engines.texts.symbolic import SymbolicHooks, linear_hooks
from ebbflow.engines.texts.totals import UploadTotal
from ebbflow.engines.vectorised import split_lanes

LEAF = 16  # devices whose coefficients are summed in one product
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

    def _train_lanes(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        hooks = [self._linear(lane, cohort) for lane in lanes]
        linear = [each for each in hooks if not isinstance(each, str)]
        return split_lanes(
            lanes,
            [not isinstance(each, str) for each in hooks],
            lambda _: self._in_sample_space(linear, cohort),
            partial(super()._train_lanes, cohort=cohort),
        )

    def _linear(self, lane: Lane, cohort: Cohort) -> SymbolicHooks | str:
        """Return a lane's hooks if they are linear, else the reason why they are not."""
        classes, shards_known = self.model.layout.shapes[-1][0], len(cohort.shards) > 0
        with failures_named(lambda: f"{place_of(cohort)}, {lane.algorithm.name}"):
            try:
                return linear_hooks(lane, self.recipe, self.bag_of_words, classes, shards_known)
            except NotLinearError as error:
                return str(error)

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models on the workers, while the caller goes on with the next round."""
        texts = self._test_texts(test.x, models[0].theta.dtype)
        counts = [
            [self._pool.submit(self._count, model.theta, texts, test.y, rows) for model in models]
            for rows in parts(test)
        ]

        def scores() -> list[Score]:
            with failures_named(lambda: "evaluation"):
                columns = zip(*counts, strict=True)
                task = self.model.task
                return [score([p.result() for p in column], test.y, task) for column in columns]

        return scores

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

    def _in_sample_space(self, hooks: Sequence[SymbolicHooks], cohort: Cohort) -> list[Trained]:
        """Train a cohort in lanes whose hooks are linear."""
        texts = self._train_texts(hooks[0].like.dtype)
        totals = [_SpanTotal(self.bag_of_words) for _ in hooks]
        clients: list[dict[int, State]] = [{} for _ in hooks]
        for window in self._whole_leaves(cohort, len(hooks)):
            trained = list(self._pool.map(partial(self._device, hooks, cohort, texts), window))
            for place, in_lanes in zip(window, trained, strict=True):
                for states, (_, state) in zip(clients, in_lanes, strict=True):
                    states[cohort.devices[place]] = state
            by_lane = [[sent for sent, _ in of_lane] for of_lane in zip(*trained, strict=True)]
            self._add(totals, by_lane, texts)
        return [(t.upload(), states) for t, states in zip(totals, clients, strict=True)]

    def _whole_leaves(self, cohort: Cohort, lanes: int) -> Iterator[range]:
        """Divide the cohort into windows of whole leaves, on which the sums do not depend."""
        largest = int(np.argmax(cohort.samples))
        texts = max(1, sum(map(len, cohort.batches[largest])))
        leaf_bytes = 2 * LEAF * lanes * texts * self.bag_of_words.width * 4
        size = LEAF * max(1, WINDOW_BYTES // leaf_bytes)
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

    def _add(
        self, totals: Sequence[_SpanTotal], sent: Sequence[Sequence[SpanUpload]], texts: Sparse
    ) -> None:
        """Add what a window's devices sent, in their order."""
        transposed: dict[bytes, Future[Sparse]] = {}
        for total, uploads in zip(totals, sent, strict=True):
            for upload in uploads:
                total.add(upload)
            for name in total.vectors:
                leaves = []
                for first in range(0, len(uploads), LEAF):
                    # Popped, so that it is released before the other lanes are summed.
                    sums = [upload.sums.pop(name) for upload in uploads[first : first + LEAF]]
                    rows = np.concatenate([one.rows for one in sums])
                    key = rows.tobytes()
                    if key not in transposed:
                        transposed[key] = self._pool.submit(_by_word, texts, rows)
                    leaves.append((transposed[key], [one.coefficients for one in sums]))
                stacks = list(self._pool.map(_stacked, leaves))
                ends = _even_ranges(stacks[0][0])
                add = partial(_add_words, total.table(name), stacks)
                list(self._pool.map(add, ends[:-1], ends[1:]))


def _by_word(texts: Sparse, rows: Indices) -> Sparse:
    return texts.rows(rows).transposed()


def _stacked(leaf: tuple[Future[Sparse], list[Tensor]]) -> tuple[Sparse, Tensor]:
    matrix, coefficients = leaf
    return matrix.result(), torch.cat(coefficients)


def _even_ranges(by_word: Sparse) -> list[int]:
    """Return the ends of ranges of words that have about equally many entries."""
    entries = np.linspace(0, len(by_word.columns), RANGES + 1)[1:-1]
    inner = np.searchsorted(by_word.starts.numpy(), entries).tolist()
    return [0, *inner, len(by_word)]


def _add_words(
    table: Tensor, stacks: Sequence[tuple[Sparse, Tensor]], first: int, last: int
) -> None:
    """Add each leaf's A^T M to the words of a range, leaf by leaf."""
    if first == last:
        return
    for matrix, coefficients in stacks:
        table[first:last].add_(matrix.part(first, last).product(coefficients))


class _SpanTotal(UploadTotal):
    """The sum of one lane's uploads; multiples of whole vectors are added at the end."""

    def __init__(self, bag_of_words: BagOfWords) -> None:
        super().__init__(bag_of_words)
        self._wholes: dict[str, dict[int, tuple[Tensor, float]]] = {}

    def add(self, sent: SpanUpload) -> None:
        """Add one device's upload except for its coefficients."""
        self.add_small({name: one.tail for name, one in sent.sums.items()}, sent.rest)
        for name, one in sent.sums.items():
            wholes = self._wholes.setdefault(name, {})
            for vector, multiple in one.wholes:
                _, so_far = wholes.get(id(vector), (vector, 0.0))
                wholes[id(vector)] = vector, so_far + multiple

    def upload(self) -> Upload:
        """Return the sum."""
        for name, wholes in self._wholes.items():
            for vector, multiple in wholes.values():
                self.table(name).add_(self.table_of(vector), alpha=multiple)
        return super().upload()
