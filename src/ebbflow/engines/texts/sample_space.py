"""Texts without dense copies: devices train on the coefficients of their own texts.

A model of averaged word vectors has the features Z = A E, with A [n, words] the sparse matrix of a
device's n texts and E the table. Every gradient of the table is A^T G, so local training stays in
the span of the device's texts and of the vectors that were there before:

    E_h = sum_v t_h[v] v - A^T M_h,    velocity_h = sum_v r_h[v] v + A^T U_h,

with v the broadcast table and whatever else an algorithm's direction adds (SCAFFOLD's c and c_k,
FedDyn's h_k). With direction = slope g + pull theta + shift a step is

    z = sum_v t_h[v] (A v)_B - K_B M_h,    K = A A^T,
    U <- momentum U + slope G - pull M,    M <- M + eta U,

and scalar recursions for t and r (`symbolic`). The classifier, a small tail, is stepped
as it is. The sum over devices of D_k A_k^T M_k is one sparse product for every sixteen devices.
Equal to the dense round but for rounding, and nothing of the table's size belongs to a device.

What is remembered: SCAFFOLD's c_k and FedDyn's h_k as coefficients, MOON's previous model as its
features of the device's own texts. Gram matrices are kept between rounds, the last used first,
within `GRAM_BYTES`.

What goes another way: an algorithm with a hook that is not linear in its vectors, or that remembers
whole models and uses more of them than their outputs; `local.radius`, which needs the length of the
whole vector; and MOON where a `Cohort` does not tell which texts a device has. They are trained on
the rows that a device touches (`row_sparse`), or else on whole vectors. The choice is
the algorithm's, the same for all devices and rounds.

Why the cut of the work does not show: each device is computed alone, each row of a table is summed
over devices in order, in leaves of sixteen, whichever worker does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.core.algorithm import Upload
from ebbflow.core.evaluate import Score, parts, score
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.types import Bags, Examples, Indices, Model, ModelState, State
from ebbflow.engines.texts.coefficients import Run, Sent
from ebbflow.engines.texts.device_texts import Grams, Plot
from ebbflow.engines.texts.row_sparse import Touched
from ebbflow.engines.texts.sparse import Sparse, texts_of
from ebbflow.engines.texts.symbolic import Hooks, hooks_on_names
from ebbflow.engines.texts.totals import Total
from ebbflow.engines.vectorised import dealt

LEAF = 16  # devices whose coefficients are summed in one product
RANGES = 16  # parts of the table that are summed apart
GRAM_BYTES = 512 * 2**20  # of Gram matrices that are kept between rounds
WINDOW_BYTES = 128 * 2**20  # of coefficients that wait to be summed


class SampleSpace(Touched):
    """Train a cohort on coefficients of its texts; the module's text says how.

    Args:
        model: A model that has `Model.bags`.
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

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        cohort.refuse_nobody()
        classes, known = self.model.layout.shapes[-1][0], len(cohort.shards) > 0
        hooks = [hooks_on_names(lane, self.recipe, self.bags, classes, known) for lane in lanes]
        ours = [each for each in hooks if each is not None]
        return dealt(
            lanes,
            [each is not None for each in hooks],
            lambda _: self._sparse(ours, cohort),
            partial(super().__call__, cohort=cohort),
        )

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models on the workers, while the caller goes on with the next round."""
        texts = self._test_texts(test.x, models[0].theta.dtype)
        counts = [
            [self._pool.submit(self._count, model.theta, texts, test.y, rows) for model in models]
            for rows in parts(test)
        ]

        def scores() -> list[Score]:
            columns = zip(*counts, strict=True)
            return [score([part.result() for part in column], len(test)) for column in columns]

        return scores

    def _count(self, theta: Tensor, texts: Sparse, y: Tensor, rows: range) -> tuple[int, float]:
        """Return how many of these texts are right, and their summed loss."""
        size = self.bags.vocabulary * self.bags.width
        table = theta[:size].view(self.bags.vocabulary, self.bags.width)
        features = texts.part(rows.start, rows.stop).product(table)
        logits, labels = self.bags.head(theta[size:], features), y[rows.start : rows.stop]
        correct = int((logits.argmax(-1) == labels).sum())
        return correct, float(functional.cross_entropy(logits, labels, reduction="sum"))

    def _train_texts(self, dtype: torch.dtype) -> Sparse:
        if dtype not in self._texts:
            self._texts = {dtype: texts_of(self.bags, self.examples.x, dtype)}
            self._grams = Grams(GRAM_BYTES)
        return self._texts[dtype]

    def _test_texts(self, x: Tensor, dtype: torch.dtype) -> Sparse:
        if self._tests is None or self._tests[0] is not x or self._tests[1] != dtype:
            self._tests = x, dtype, texts_of(self.bags, x, dtype)
        return self._tests[2]

    # --- a round --------------------------------------------------------------------------------

    def _sparse(self, hooks: Sequence[Hooks], cohort: Cohort) -> list[Trained]:
        """Train a cohort in lanes whose hooks can be run on names."""
        texts = self._train_texts(hooks[0].like.dtype)
        totals = [_Total(self.bags) for _ in hooks]
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
        """Cut the cohort into windows, each a number of leaves: the sums do not depend on it."""
        largest = int(np.argmax(cohort.samples))
        texts = max(1, sum(map(len, cohort.batches[largest])))
        size = LEAF * max(1, WINDOW_BYTES // (2 * LEAF * lanes * texts * self.bags.width * 4))
        for first in range(0, len(cohort.devices), size):
            yield range(first, min(first + size, len(cohort.devices)))

    def _device(
        self, hooks: Sequence[Hooks], cohort: Cohort, texts: Sparse, place: int
    ) -> list[tuple[Sent, State]]:
        """Train one device in every lane, on texts and a Gram matrix that they share."""
        device = cohort.devices[place]
        where = f"session {cohort.session}, round {cohort.round}, device {device}"
        shard = cohort.shards[place] if len(cohort.shards) else None
        plot = Plot(cohort.batches[place], shard, texts, self.examples.y, self._grams)
        samples = torch.tensor(cohort.weight(place)).to(hooks[0].like)
        return [
            Run(self.bags, each, plot, each.lane.clients.get(device)).trained(samples, where)
            for each in hooks
        ]

    def _add(self, totals: Sequence[_Total], sent: Sequence[Sequence[Sent]], texts: Sparse) -> None:
        """Add what a window's devices sent, in their order."""
        transposed: dict[bytes, Future[Sparse]] = {}
        for total, uploads in zip(totals, sent, strict=True):
            for upload in uploads:
                total.add(upload)
            for name in total.vectors:
                leaves = []
                for first in range(0, len(uploads), LEAF):
                    # Taken away: what is summed need not be kept until all lanes are.
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
    """Return where to cut the words, so that every range has about as many entries."""
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


class _Total(Total):
    """The sum of one lane's uploads, and the multiples of whole vectors that it lacks so far."""

    def __init__(self, bags: Bags) -> None:
        super().__init__(bags)
        self._wholes: dict[str, dict[int, tuple[Tensor, float]]] = {}

    def add(self, sent: Sent) -> None:
        """Add one device, all but its coefficients."""
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
