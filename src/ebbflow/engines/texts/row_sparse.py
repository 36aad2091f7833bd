"""Texts on the rows they touch: a device trains on the words of its own mini-batches.

A mini-batch has a gradient in the rows of its own words and in the tail; every other row of the
table sees zeros. Where an algorithm treats every entry for itself (`Algorithm.elementwise`), linear
or not, a device needs no more than

    theta' = [padding's row, the rows of its words, tail]

and its texts in numbers among these words: `core.local.train` does the rest. The rows that it does
not touch go their own way, without its data: what they would send depends on the broadcast, on the
number of steps and on D_k. With idle_k for what a device would send that has no gradients at all,

    sum_k upload_k = sum_k idle_k + sum_k scattered(upload'_k - idle'_k).

Mostly idle_k is nothing: the direction of a zero gradient is zero at the broadcast model (a sign, a
clip, FedProx), and the upload is linear in the displacement (`core.spanned` runs it on names to see
that). Then nothing of the table's size is computed but the sum. Otherwise (weight decay, an upload
that is a sign) it is computed once for every number of steps and D_k, a range of entries at a time:
hooks that treat every entry for itself take any of them.

What goes the dense way of `ebbflow.engines.vectorised` instead: an algorithm that does not say that
it is elementwise; one whose devices remember something, since their untouched rows go different
ways; and `local.radius`, which needs the length of the whole vector.

Why the cut of the work does not show: each device is computed alone, uploads are added one by one
in device order, and the ranges are the same however many workers share them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ebbflow.core.algorithm import Broadcast, LocalRun, Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Batch, Cohort, Lane, Recipe, Trained, heavy_ball, step_sum, train
from ebbflow.core.types import Bags, Examples, Model, ModelState, Part, State
from ebbflow.engines.texts.combination import combined, multiples_of
from ebbflow.engines.texts.symbolic import OWN, SENT, START, Course, Hooks
from ebbflow.engines.texts.totals import Total, apart
from ebbflow.engines.vectorised import Vectorised, dealt

AHEAD = 4  # devices for each worker that may be trained before it is their turn to be added
RANGE = 2**16  # entries of whole vectors that are computed together: they fit the cache

Result = TypeVar("Result")


class Touched(Vectorised):
    """Train a cohort on the rows that its texts touch; the module's text says how.

    Args:
        model: A model that has `Model.bags`.
        examples: The training set, on the device that computes.
        recipe: Momentum and projection.
        workers: Threads, each of which computes on one core; by default one per core.
    """

    def __init__(
        self, model: Model, examples: Examples, recipe: Recipe, workers: int | None = None
    ) -> None:
        if model.bags is None:
            raise EbbflowError(f"the model {model.name} does not average word vectors")
        super().__init__(model, examples, recipe, workers=workers)
        self.bags: Bags = model.bags

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        cohort.refuse_nobody()
        return dealt(
            lanes,
            [_fits(lane, self.recipe) for lane in lanes],
            partial(self._on_rows, cohort=cohort),
            partial(super().__call__, cohort=cohort),
        )

    def _on_rows(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        plans = [_Plan(lane, self.recipe, self.bags) for lane in lanes]
        totals = [_Rows(self.bags) for _ in lanes]
        work = partial(self._device_on_rows, plans, cohort)
        for in_lanes in self._in_turn(work, len(cohort.devices)):
            for total, sent in zip(totals, in_lanes, strict=True):
                total.add(sent)
        for plan, total in zip(plans, totals, strict=True):
            if total.idle:
                add = partial(plan.add_idle, total)
                list(self._pool.map(add, range(0, len(plan.lane.shared.theta), RANGE)))
        states: dict[int, State] = {device: {} for device in cohort.devices}
        return [(total.upload(), dict(states)) for total in totals]

    def _device_on_rows(self, plans: Sequence[_Plan], cohort: Cohort, place: int) -> list[_Sent]:
        """Train one device in every lane, on words and mini-batches that they share."""
        theta = plans[0].lane.shared.theta
        batches = self.feed.steps(cohort, place, theta)
        part = self.bags.part([batch.x for batch in batches])
        words = part.words.to(theta.device)  # of a device without a step they are on the CPU
        steps = [b._replace(x=x) for b, x in zip(batches, part.texts, strict=True)]
        samples = cohort.weight(place)
        return [plan.trained(part._replace(words=words), steps, samples) for plan in plans]

    def _in_turn(self, work: Callable[[int], Result], places: int) -> Iterator[Result]:
        """Yield the results in order; few of them wait to be taken."""
        waiting: deque[Future[Result]] = deque()
        try:
            for place in range(places):
                waiting.append(self._pool.submit(work, place))
                if len(waiting) >= AHEAD * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _fits(lane: Lane, recipe: Recipe) -> bool:
    """Return whether a lane can be trained on rows: see the module's text."""
    if recipe.radius is not None or not lane.algorithm.elementwise:
        return False
    return not lane.algorithm.init_client(lane.shared)


# --- one lane ------------------------------------------------------------------------------------


class _Sent(NamedTuple):
    """A device's upload: its vectors on these words, the rest, and what it would send idle.

    ``vectors`` are without what the device would send idle. That is nothing, or is named by
    ``idle``, the number of steps and the weight that it depends on.
    """

    words: Tensor
    vectors: dict[str, Tensor]
    rest: dict[str, Tensor]
    idle: tuple[int, float] | None


class _Plan:
    """One lane of a round: its devices' training, and what they would send idle."""

    def __init__(self, lane: Lane, recipe: Recipe, bags: Bags) -> None:
        self.lane, self.recipe, self.bags = lane, recipe, bags
        self._frozen = lane.algorithm.anchors(lane.shared, {})
        theta = lane.shared.theta
        pull = lane.algorithm.direction(torch.zeros_like(theta), theta, lane.shared, {})
        # A direction of zero does not move theta, and where theta did not move it is zero again.
        self._still = not bool(pull.any())
        self._hooks: Hooks | None
        try:
            self._hooks = Hooks(lane, recipe)
        except Exception:  # whatever it is: on vectors it comes again, or is no error there
            self._hooks = None

    def trained(self, part: Part, batches: Sequence[Batch], samples: float) -> _Sent:
        """Train a device on its part of the vectors; return what it sends."""
        lane, steps = self.lane, len(batches)
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
            return _Sent(part.words, vectors, rest, None)
        ((_, idle),) = self._idle(shared, [(steps, samples)])
        vectors = {name: vectors[name] - value for name, value in _apart(idle)[0].items()}
        return _Sent(part.words, vectors, rest, (steps, samples))

    def add_idle(self, total: _Rows, first: int) -> None:
        """Add what all devices would send idle to one range of the sums' entries."""
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
        size = self.bags.vocabulary * self.bags.width
        rows = vector[:size].view(-1, self.bags.width).index_select(0, words)
        return torch.cat([rows.view(-1), vector[size:]])

    def _idle(
        self, shared: Broadcast, runs: Iterable[tuple[int, float]]
    ) -> Iterator[tuple[tuple[int, float], Upload]]:
        """Yield what is sent without a gradient, after so many steps and with such a weight."""
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
        """Return whether such a device would send nothing idle, whatever was broadcast."""
        if not self._still or self._hooks is None:
            return False
        course = Course(1.0, 0.0, {}, [{SENT: 1.0}] * (steps + 1))
        try:
            upload, _ = self._hooks.upload({}, course, samples)
            vectors, _ = apart(upload, lambda value: combined(value) is not None)
            # Neither did it move on its own, nor has it a gradient at the start.
            return all(multiples_of(v).keys() <= {OWN, START} for v in vectors.values())
        except Exception:  # not linear, as above
            return False


class _Rows(Total):
    """The sum of one lane's uploads, and of whom it lacks what they would send idle."""

    def __init__(self, bags: Bags) -> None:
        super().__init__(bags)
        self.idle: Counter[tuple[int, float]] = Counter()

    def add(self, sent: _Sent) -> None:
        """Add one device."""
        size = len(sent.words) * self._width
        self.add_small({name: v[size:] for name, v in sent.vectors.items()}, sent.rest)
        for name, vector in sent.vectors.items():
            rows = vector[:size].view(-1, self._width)
            self.table(name).index_add_(0, sent.words, rows)
        if sent.idle is not None:
            self.idle[sent.idle] += 1


def _apart(upload: Upload) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return apart(upload, lambda value: value.shape == upload.delta.shape)
