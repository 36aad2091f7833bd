"""Trains texts on the rows of the table that they touch.

A mini-batch has a gradient in the rows of its own words and in the tail; in every other row of the
table it is zero. If an algorithm's hooks, linear or not, treat every entry by itself (`entrywise`
finds out), a device needs no more than

    theta' = [padding's row, the rows of its words, tail]

and its texts with words renumbered by their place among these rows: `core.local.train` does the
rest. Rows that the device does not touch do not depend on its data: what they would send depends on
the broadcast, on the number of steps and on D_k. With idle_k what a device would send that has no
gradients at all,

    sum_k upload_k = sum_k idle_k + sum_k scattered(upload'_k - idle'_k).

In most cases idle_k is zero: the direction of a zero gradient is zero at the broadcast model (a
sign, a clip, FedProx), and the upload is linear in the displacement (`symbolic` runs it on names to
see that). Then nothing of the table's size is computed except for the sum. Otherwise (weight decay,
an upload that is a sign) idle_k is computed once for every number of steps and D_k, a range of
entries at a time: hooks that treat every entry by itself can be run on any range.

Three kinds of lanes are trained on whole vectors instead: algorithms with hooks that may mix
entries; those whose devices remember something, since untouched rows would differ between devices;
and any with `local.radius`, which needs the length of the whole vector.

The result does not depend on how the work is divided: each device is computed alone, uploads are
added up in leaves of sixteen devices, and the ranges are the same for any number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core.algorithm import Broadcast, LocalRun, Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import (
    Batch,
    Cohort,
    Lane,
    Recipe,
    Route,
    heavy_ball,
    step_sum,
    train,
)
from ebbflow.core.types import BagOfWords, Examples, Model, ModelState, State, WordSubset
from ebbflow.engines.ahead import in_turn
from ebbflow.engines.failures import failures_named, place_of
from ebbflow.engines.leaves import LeafStretch, LeafSum, Total, split_lanes
from ebbflow.engines.texts.combination import NotLinearError, combined, multiples_of
from ebbflow.engines.texts.entrywise import NotElementwiseError, check_elementwise
from ebbflow.engines.texts.packed_states import mean_whole_state, with_whole_states
from ebbflow.engines.texts.symbolic import OWN, SENT, START, SymbolicHooks, Trajectory
from ebbflow.engines.texts.totals import (
    TEXT_LEAF,
    SmallParts,
    UploadTotal,
    WordRows,
    apart,
    small_sum,
)
from ebbflow.engines.vectorised import Vectorised

AHEAD = 4  # devices per worker whose uploads may wait for their turn to be added
RANGE = 2**16  # entries of whole vectors that are computed together: they fit the cache
PROBED_STEPS = (1, 3)  # numbers of steps that hooks are checked with before a round
PROBED_SAMPLES = 2.0  # and the weight: whoever takes part, a lane goes the same way


class RowSparse(Vectorised):
    """Trains a cohort on the rows that its texts touch; see the module's text.

    Args:
        model: A model that averages word vectors (`EngineHints.bag_of_words`).
        examples: The training set, on the device that computes.
        recipe: Momentum and projection.
        workers: Threads, each of which computes on one core; by default one per core.
    """

    leaf = TEXT_LEAF

    def __init__(
        self, model: Model, examples: Examples, recipe: Recipe, workers: int | None = None
    ) -> None:
        if model.hints.bag_of_words is None:
            raise EbbflowError(f"the model {model.name} does not average word vectors")
        super().__init__(model, examples, recipe, workers=workers)
        self.bag_of_words: BagOfWords = model.hints.bag_of_words

    def mean_state(self, states: Sequence[State], samples: Sequence[int]) -> State:
        """Return the mean of device states as whole vectors, weighted by D_k."""
        return mean_whole_state(states, samples, self.bag_of_words, self.feed.examples)

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Train the round again with the reference engine, which names the device at fault."""
        super().explain(self._whole(lanes, cohort), cohort)

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return whether the lane is trained on rows or on whole vectors, and why."""
        reason = self._not_on_rows(lane, cohort)
        if reason:
            return Route("whole vectors", reason)
        return Route("touched rows", "the sample space needs the CPU")

    def leaves(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        """Train lanes on rows where their hooks allow it, and yield the leaves' sums."""
        return split_lanes(
            lanes,
            [not self._not_on_rows(lane, cohort) for lane in lanes],
            partial(self._on_rows, cohort=cohort),
            partial(self._on_whole_vectors, cohort=cohort),
        )

    def _total(self, lane: Lane, like: LeafSum) -> Total:
        if isinstance(like, RowLeaf):
            return _RowTotal(self.bag_of_words, lane, self.recipe, self._pool)
        return super()._total(lane, like)

    def _on_whole_vectors(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        return super().leaves(self._whole(lanes, cohort), cohort)

    def _whole(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Lane]:
        return with_whole_states(lanes, cohort, self.bag_of_words, self.feed.examples)

    def _not_on_rows(self, lane: Lane, cohort: Cohort) -> str:
        """Return why a lane cannot be trained on rows; nothing if it can."""
        if self.recipe.radius is not None:
            return "local.radius needs the length of the whole vector"
        with failures_named(lambda: f"{place_of(cohort)}, {lane.algorithm.name}"):
            if lane.algorithm.init_client(lane.shared):
                return "devices remember something"
            try:
                for steps in PROBED_STEPS:
                    check_elementwise(lane, self.recipe, steps, PROBED_SAMPLES)
            except NotElementwiseError as error:
                return str(error)
        return ""

    def _on_rows(self, lanes: Sequence[Lane], cohort: Cohort) -> Iterator[LeafStretch]:
        row_lanes = [RowSparseLane(lane, self.recipe, self.bag_of_words) for lane in lanes]
        devices = iter(cohort.devices)
        work = partial(self._device_on_rows, row_lanes, cohort)
        sent = in_turn(self._pool, work, range(len(cohort.devices)), AHEAD * self.workers)
        while leaf := list(islice(sent, TEXT_LEAF)):
            states: dict[int, State] = {device: {} for device in islice(devices, len(leaf))}
            by_lane = zip(*leaf, strict=True)
            yield LeafStretch(
                tuple(range(len(lanes))),
                [[_leaf_of(uploads, self.bag_of_words.width)] for uploads in by_lane],
                [dict(states) for _ in lanes],
            )

    def _device_on_rows(
        self, lanes: Sequence[RowSparseLane], cohort: Cohort, place: int
    ) -> list[RowUpload]:
        """Train one device in every lane, on words and mini-batches that the lanes share."""
        theta = lanes[0].lane.shared.theta
        batches = self.feed.steps(cohort, place, theta)
        subset = self.bag_of_words.subset([batch.x for batch in batches])
        words = subset.words.to(theta.device)  # those of a device without a step are on the CPU
        steps = [b._replace(x=x) for b, x in zip(batches, subset.texts, strict=True)]
        samples = cohort.weight(place)
        try:
            return [lane.trained(subset._replace(words=words), steps, samples) for lane in lanes]
        except NotElementwiseError as error:
            raise EbbflowError(
                f"{place_of(cohort, cohort.devices[place])}: {error}, though it does for others "
                'with other steps or samples: use engine.kind = "sequential"'
            ) from error


# --- one lane ------------------------------------------------------------------------------------


class RowUpload(NamedTuple):
    """A device's upload: its vectors on the rows of these words, and everything else.

    What the device would send idle has been subtracted from ``vectors``. ``idle`` is the number of
    steps and the weight that determine it, or None if it is zero.
    """

    words: Tensor
    vectors: dict[str, Tensor]
    rest: dict[str, Tensor]
    idle: tuple[int, float] | None


class RowSparseLane:
    """One lane of a round: its devices' training, and what they would send idle."""

    def __init__(self, lane: Lane, recipe: Recipe, bag_of_words: BagOfWords) -> None:
        self.lane, self.recipe, self.bag_of_words = lane, recipe, bag_of_words
        self._checked: set[tuple[int, float]] = set()
        self._frozen = lane.algorithm.anchors(lane.shared, {})
        theta = lane.shared.theta
        pull = lane.algorithm.direction(torch.zeros_like(theta), theta, lane.shared, {})
        # A direction of zero leaves theta where it is, where the direction is zero again.
        self._still = not bool(pull.any())
        self._hooks: SymbolicHooks | None
        try:
            self._hooks = SymbolicHooks(lane, recipe)
        except NotLinearError:
            self._hooks = None

    def trained(self, part: WordSubset, batches: Sequence[Batch], samples: float) -> RowUpload:
        """Train a device on its part of the vectors; return what it sends."""
        lane, steps = self.lane, len(batches)
        if (steps, samples) not in self._checked:
            check_elementwise(lane, self.recipe, steps, samples)
            self._checked.add((steps, samples))
        shared = self._broadcast(partial(self._rows, part.words))
        frozen = {
            name: ModelState(self._rows(part.words, model.theta), model.buffers)
            for name, model in self._frozen.items()
        }
        algorithm = lane.algorithm._replace(anchors=lambda shared, client: frozen)
        count = torch.tensor(samples).to(shared.theta)
        upload, _ = train(part.model, algorithm, self.recipe, shared, {}, batches, lane.lr, count)
        vectors, rest = _apart(upload)
        if self._sends_nothing_idle(steps, count):
            return RowUpload(part.words, vectors, rest, None)
        ((_, idle),) = self._idle(shared, [(steps, samples)])
        vectors = {name: vectors[name] - value for name, value in _apart(idle)[0].items()}
        return RowUpload(part.words, vectors, rest, (steps, samples))

    def add_idle(self, total: _RowTotal, first: int) -> None:
        """Add what all devices would send idle to one range of entries of the sums."""
        entries = slice(first, first + RANGE)
        shared = self._broadcast(lambda vector: vector[entries])
        for run, upload in self._idle(shared, total.idle):
            for name, value in _apart(upload)[0].items():
                total.vectors[name][entries].add_(value, alpha=total.idle[run])

    def _broadcast(self, part: Callable[[Tensor], Tensor]) -> Broadcast:
        """Return the same part of all vectors of the broadcast."""
        theta, buffers, extras = self.lane.shared
        vectors = {name: part(v) for name, v in extras.items() if v.shape == theta.shape}
        return Broadcast(part(theta), buffers, {**extras, **vectors})

    def _rows(self, words: Tensor, vector: Tensor) -> Tensor:
        """Return the rows of these words, and the tail."""
        size = self.bag_of_words.vocabulary * self.bag_of_words.width
        rows = vector[:size].view(-1, self.bag_of_words.width).index_select(0, words)
        return torch.cat([rows.view(-1), vector[size:]])

    def _idle(
        self, shared: Broadcast, runs: Iterable[tuple[int, float]]
    ) -> Iterator[tuple[tuple[int, float], Upload]]:
        """Yield what is sent without any gradient, for each number of steps and weight."""
        algorithm, lr, momentum = self.lane.algorithm, self.lane.lr, self.recipe.momentum
        theta, velocity, made = shared.theta, None, 0
        start = torch.zeros_like(theta) if algorithm.start_gradient else None
        for steps, samples in sorted(runs):
            while made < steps:
                direction = algorithm.direction(torch.zeros_like(theta), theta, shared, {})
                theta, velocity = heavy_ball(theta, velocity, direction, momentum, lr)
                made += 1
            count, along = torch.tensor(samples).to(theta), step_sum(steps, momentum)
            run = LocalRun(theta, shared.buffers, steps, along, lr, count, start)
            yield (steps, samples), algorithm.upload(shared, {}, run)[0]

    def _sends_nothing_idle(self, steps: int, samples: Tensor) -> bool:
        """Return whether such a device would send zeros if it had no gradients."""
        if not self._still or self._hooks is None:
            return False
        trajectory = Trajectory(1.0, 0.0, {}, [{SENT: 1.0}] * (steps + 1))
        try:
            upload, _ = self._hooks.upload({}, trajectory, samples)
            vectors, _ = apart(upload, lambda value: combined(value) is not None)
            # An idle device has not moved and has no gradient at the start: both are zero.
            return all(multiples_of(v).keys() <= {OWN, START} for v in vectors.values())
        except NotLinearError:
            return False


class RowLeaf(NamedTuple):
    """A leaf's sum: what it adds to tables, and everything else.

    ``idle`` counts the devices whose idle uploads were subtracted and must be added again.
    """

    tables: dict[str, WordRows]
    small: SmallParts
    idle: dict[tuple[int, float], int]


def _leaf_of(sent: Sequence[RowUpload], width: int) -> RowLeaf:
    """Return the sum of what some devices send, on the rows that any of them touches."""
    words = torch.unique(torch.cat([one.words for one in sent]))
    sizes = [len(one.words) * width for one in sent]
    tables = {}
    for name, like in sent[0].vectors.items():
        rows = like.new_zeros(len(words), width)
        for one, size in zip(sent, sizes, strict=True):
            at = torch.searchsorted(words, one.words)
            rows.index_add_(0, at, one.vectors[name][:size].view(-1, width))
        tables[name] = WordRows(words, rows)
    small = small_sum(
        SmallParts({name: vector[size:] for name, vector in one.vectors.items()}, one.rest)
        for one, size in zip(sent, sizes, strict=True)
    )
    return RowLeaf(tables, small, Counter(one.idle for one in sent if one.idle is not None))


class _RowTotal(UploadTotal):
    """The sum of one lane's leaves."""

    def __init__(
        self, bag_of_words: BagOfWords, lane: Lane, recipe: Recipe, pool: Executor
    ) -> None:
        super().__init__(bag_of_words)
        self.idle: Counter[tuple[int, float]] = Counter()
        self._lane, self._pool = partial(RowSparseLane, lane, recipe, bag_of_words), pool

    def add(self, sums: Sequence[RowLeaf]) -> None:
        """Add some leaves, in their order."""
        for leaf in sums:
            self.add_small(leaf.small)
            for name, rows in leaf.tables.items():
                table = self.table(name)
                rows.add_to(table, 0, len(table))
            self.idle.update(leaf.idle)

    def upload(self) -> Upload:
        """Return the sum."""
        if self.idle:
            lane = self._lane()
            add = partial(lane.add_idle, self)
            list(self._pool.map(add, range(0, len(lane.lane.shared.theta), RANGE)))
        return super().upload()


def _apart(upload: Upload) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return apart(upload, lambda value: value.shape == upload.delta.shape)
