"""One device's round on the coefficients of its texts: `ebbflow.engines.sample_space` says why."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.combination import Combination, multiples_of
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.local import Batch, _cotangent
from ebbflow.core.spanned import (
    OWN,
    SENT,
    SHARED,
    START,
    Course,
    Hooks,
    Seen,
    Span,
    Vector,
    packed,
)
from ebbflow.core.sparse import Sparse
from ebbflow.core.types import Bags, Indices, Output, State

WIDER = 2  # a shard's Gram matrix is kept if the shard is at most so many times a round's texts


class Grams:
    """Gram matrices of devices' texts between rounds, the last used first, within some bytes."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._lock = Lock()

    def of(self, rows: Indices, texts: Sparse) -> Tensor:
        """Return A A^T of these rows."""
        key = rows.tobytes()
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        mine = texts.rows(rows)
        found = mine.gram(mine)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = found
                self._held += found.nbytes
            while self._held > self._limit:
                _, dropped = self._kept.popitem(last=False)
                self._held -= dropped.nbytes
        return found


class Step(NamedTuple):
    """One mini-batch by the places of its texts among the round's.

    The texts of the steps ``before`` this one come first, those up to and with this one are the
    first ``after``. ``at`` is a range where all texts of the step are new, in order.
    """

    at: slice | Tensor
    before: int
    after: int
    batch: Batch

    def of(self, rows: Tensor) -> Tensor:
        """Return the step's rows."""
        return rows[self.at] if isinstance(self.at, slice) else rows.index_select(0, self.at)


class Texts(NamedTuple):
    """Some texts: their rows in the training set, and A."""

    rows: Indices
    matrix: Sparse


class Plot:
    """What a device trains on in a round, the same in all lanes: texts, Gram matrices, steps."""

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
        self._shard = None if shard is None else np.sort(shard)
        self.own = Texts(rows, texts.rows(rows))
        self.rows = torch.from_numpy(rows)
        y = labels[self.rows]
        self.steps = list(_steps([len(b) for b in batches], rank[place], y, texts.values))
        self._known: dict[bytes, Tensor] = {}
        self._whole_shard: Texts | None = None

    @property
    def shard(self) -> Texts:
        """All texts of the device."""
        if self._whole_shard is None:
            if self._shard is None:
                raise EbbflowError("the cohort does not tell which texts its devices have")
            self._whole_shard = Texts(self._shard, self._all.rows(self._shard))
        return self._whole_shard

    def transposed(self, rows: Indices, coefficients: Tensor) -> Tensor:
        """Return A^T coefficients of these rows: a whole table."""
        return self._all.rows(rows).transposed().product(coefficients)

    def gram(self, of: Texts, others: Indices) -> Tensor:
        """Return how alike some texts are to others, ``[texts, others]``."""
        key = (b"own" if of is self.own else b"shard") + others.tobytes()
        if key not in self._known:
            self._known[key] = self._gram(of, others)
        return self._known[key]

    def _gram(self, of: Texts, others: Indices) -> Tensor:
        shard = self._shard
        if shard is not None and len(shard) <= WIDER * len(self.own.rows):
            left, right = _places(of.rows, shard), _places(others, shard)
            if left is not None and right is not None:
                found = self._grams.of(shard, self._all)
                if of.rows is not shard:
                    found = found.index_select(0, left)
                return found.index_select(1, right)
        return of.matrix.gram(self._all.rows(others))


def _steps(sizes: Sequence[int], places: Indices, y: Tensor, like: Tensor) -> Iterable[Step]:
    begin = seen = 0
    for size in sizes:
        mine = places[begin : begin + size]
        begin += size
        after = max(seen, int(mine.max()) + 1)
        new = after - seen == size and bool((mine == np.arange(seen, after)).all())
        at = slice(seen, after) if new else torch.from_numpy(mine)
        weights = like.new_full((size,), 1 / size)
        yield Step(at, seen, after, Batch(like, y[at], weights))
        seen = after


def _places(rows: Indices, among: Indices) -> Tensor | None:
    """Return where the rows are in a sorted array, or None if one is not there."""
    if not len(among):
        return None if len(rows) else torch.zeros(0, dtype=torch.int64)
    at = np.searchsorted(among, rows).clip(max=len(among) - 1)
    return torch.from_numpy(at) if bool((among[at] == rows).all()) else None


class Sum(NamedTuple):
    """A vector that a device sends: A^T coefficients and multiples of whole vectors; the tail."""

    rows: Indices
    coefficients: Tensor
    wholes: list[tuple[Tensor, float]]
    tail: Tensor


class Sent(NamedTuple):
    """A device's upload, its vectors as sums by name ("" is delta), the rest as it is."""

    sums: dict[str, Sum]
    rest: dict[str, Tensor]


class Run:
    """One device in one lane."""

    def __init__(self, bags: Bags, hooks: Hooks, plot: Plot, state: State | None) -> None:
        self.bags, self.hooks, self.plot = bags, hooks, plot
        self.client, vectors = (hooks.fresh, {}) if state is None else hooks.remembered(state)
        self.vectors: dict[str, Vector] = {**hooks.vectors, **vectors}
        self._features: dict[tuple[str, bool], Tensor] = {}

    def trained(self, samples: Tensor, where: str) -> tuple[Sent, State]:
        """Train the device; return what it sends and what it remembers."""
        most, lr = torch.finfo(samples.dtype).max, self.hooks.lane.lr
        if lr > most:
            raise TrainingError(
                f"{where}, step 1: the rate {lr:g} is beyond {samples.dtype}; lower lr.initial"
            )
        course = self.hooks.course(self.client, len(self.plot.steps))
        moved, tail = self._walk(course)
        if not bool(torch.isfinite(moved.sum() + tail.sum())):
            self._walk(course, where)  # names the step, unless only the sum was too large
        # theta_H = sum_v t_H[v] v - own holds for the tail, too: that is what own's tail is.
        own = self._tail(course.multiples[-1]).sub_(tail)
        self.vectors[OWN] = Span(self.plot.rows, moved, own)
        sent, after = self.hooks.upload(self.client, course, samples)
        sums = {"": self._sum(multiples_of(sent.delta))}
        rest = {"buffers": sent.buffers, "samples": sent.samples, "devices": sent.devices}
        for name, value in sent.extras.items():
            if isinstance(value, Combination):
                sums[name] = self._sum(value.multiples())
            else:
                rest["extras/" + name] = value
        memory = {
            name: self._memory(value.multiples()) if isinstance(value, Combination) else value
            for name, value in after.items()
        }
        return Sent(sums, rest), packed(memory)

    # --- the steps ------------------------------------------------------------------------------

    def _walk(self, course: Course, where: str | None = None) -> tuple[Tensor, Tensor]:
        """Make the steps; return M_H and the tail. With ``where``, look at every iterate."""
        plot, momentum, lr = self.plot, self.hooks.recipe.momentum, self.hooks.lane.lr
        anchors = self._anchors()
        at_start = self.hooks.algorithm.start_gradient
        tail = self._whole(SENT)[1].clone()
        push, speed = self._tail(course.shift), torch.zeros_like(tail)
        moved = tail.new_zeros(len(plot.rows), self.bags.width)
        velocity = torch.zeros_like(moved)
        first, first_tail, seen = torch.zeros_like(moved), torch.zeros_like(tail), 0
        for number, step in enumerate(plot.steps):
            theirs = {
                name: Output(step.of(output.logits), step.of(output.features))
                for name, output in anchors.items()
            }
            if at_start:
                sent = step.of(self._of(SENT))
                slope, part = self._slope(self._whole(SENT)[1], sent, step, theirs)
                count = len(step.batch.y)
                _add_at(first, step, slope, count)
                first_tail.add_(part, alpha=count)
                seen += count
            z = self._iterate(course.multiples[number], step)
            if step.before:
                near = step.of(plot.gram(plot.own, plot.own.rows))[:, : step.before]
                z = torch.addmm(z, near, moved[: step.before], alpha=-1)
            slope, part = self._slope(tail, z, step, theirs)
            # In place on the texts that have been seen so far; all other coefficients are zero.
            known = velocity[: step.before].mul_(momentum)
            speed.mul_(momentum).add_(part, alpha=course.slope).add_(push)
            if course.pull:
                known.sub_(moved[: step.before], alpha=course.pull)
                speed.add_(tail, alpha=course.pull)
            _add_at(velocity, step, slope, course.slope)
            moved[: step.after].add_(velocity[: step.after], alpha=lr)
            tail.sub_(speed, alpha=lr)
            if where and not bool(moved.isfinite().all() and tail.isfinite().all()):
                raise TrainingError(
                    f"{where}, step {number + 1}: the local model is no longer finite; lower "
                    f"lr.initial (now {lr:g} in this round) or set local.radius"
                )
        if at_start:
            by = 1 / max(seen, 1)
            self.vectors[START] = Span(plot.rows, first.mul_(by), first_tail.mul_(by))
        return moved, tail

    def _slope(
        self, tail: Tensor, z: Tensor, step: Step, anchors: dict[str, Output]
    ) -> tuple[Tensor, Tensor]:
        """Return the loss's derivative in the features and in the tail."""
        output = Output(self.bags.head(tail, z), z)
        slope = _cotangent(self.hooks.algorithm, output, step.batch, anchors, self.client)
        return self.bags.pull(tail, z, slope)

    def _iterate(self, multiples: Mapping[str, float], step: Step) -> Tensor:
        """Return the step's features, but for what the own steps have moved."""
        sent = step.of(self._of(SENT))
        by = multiples.get(SENT, 0.0)
        z = sent if by == 1 else sent * by
        for name, multiple in multiples.items():
            if name != SENT:
                z = torch.add(z, step.of(self._of(name)), alpha=multiple)
        return z

    def _anchors(self) -> dict[str, Output]:
        """Return the outputs of the frozen models on all of the round's texts."""
        outputs = {}
        for name, model in self.hooks.algorithm.anchors(self.hooks.shared, self.client).items():
            if isinstance(model.theta, Combination):
                multiples = model.theta.multiples()
                features, tail = self._mixed(multiples, False), self._tail(multiples)
            else:
                table, tail = self._split(model.theta)
                features = self.plot.own.matrix.product(table)
            outputs[name] = Output(self.bags.head(tail, features), features)
        return outputs

    # --- vectors --------------------------------------------------------------------------------

    def _split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        size = self.bags.vocabulary * self.bags.width
        return vector[:size].view(self.bags.vocabulary, self.bags.width), vector[size:]

    def _whole(self, name: str) -> tuple[Tensor, Tensor]:
        vector = self.vectors[name]
        if not isinstance(vector, Tensor):
            raise EbbflowError(f"{name} is not known in all entries")
        return self._split(vector)

    def _tail(self, multiples: Mapping[str, float]) -> Tensor:
        """Return the tail of a combination."""
        total = torch.zeros_like(self._whole(SENT)[1])
        for name, multiple in multiples.items():
            vector = self.vectors[name]
            tail = self._split(vector)[1] if isinstance(vector, Tensor) else vector.tail
            total.add_(tail, alpha=multiple)
        return total

    def _of(self, name: str, everywhere: bool = False) -> Tensor:
        """Return A v for a named vector, on the round's texts or on all of the device's."""
        key = name, everywhere
        if key not in self._features:
            texts = self.plot.shard if everywhere else self.plot.own
            self._features[key] = self._product(self.vectors[name], texts)
        return self._features[key]

    def _product(self, vector: Vector, texts: Texts) -> Tensor:
        if isinstance(vector, Tensor):
            return texts.matrix.product(self._split(vector)[0])
        others = vector.rows.numpy()
        if isinstance(vector, Span):
            return self.plot.gram(texts, others) @ vector.coefficients
        order = np.argsort(others)
        at = _places(texts.rows, others[order])
        if at is None:
            raise EbbflowError(
                "a device remembers the features of other texts than it has now: its samples must "
                "stay the same for as long as its state is kept"
            )
        return vector.features[torch.from_numpy(order)[at]]

    def _mixed(self, multiples: Mapping[str, float], everywhere: bool) -> Tensor:
        """Return the features of a combination."""
        if set(multiples.items()) == {(SENT, 1.0)}:
            return self._of(SENT, everywhere)
        texts = self.plot.shard if everywhere else self.plot.own
        total = self._whole(SENT)[0].new_zeros(len(texts.rows), self.bags.width)
        for name, multiple in multiples.items():
            total.add_(self._of(name, everywhere), alpha=multiple)
        return total

    def _sum(self, multiples: Mapping[str, float]) -> Sum:
        """Return a combination in terms that can be summed over devices."""
        wholes: list[tuple[Tensor, float]] = []
        spans: list[tuple[Span, float]] = []
        for name, multiple in multiples.items():
            vector = self.vectors[name]
            if isinstance(vector, Tensor):
                wholes.append((vector, multiple))
            elif isinstance(vector, Span):
                spans.append((vector, multiple))
            else:
                raise EbbflowError(f"{name} is known by its features alone")
        rows, coefficients = self._joined(spans)
        return Sum(rows, coefficients, wholes, self._tail(multiples))

    def _joined(self, spans: Sequence[tuple[Span, float]]) -> tuple[Indices, Tensor]:
        if len(spans) == 1:
            ((only, multiple),) = spans
            return only.rows.numpy(), only.coefficients * multiple
        every = [span.rows.numpy() for span, _ in spans]
        rows = np.unique(np.concatenate([*every, np.zeros(0, dtype=np.int64)]))
        total = self._whole(SENT)[0].new_zeros(len(rows), self.bags.width)
        for mine, (span, multiple) in zip(every, spans, strict=True):
            at = torch.from_numpy(np.searchsorted(rows, mine))
            total.index_add_(0, at, span.coefficients, alpha=multiple)
        return rows, total

    def _memory(self, multiples: Mapping[str, float]) -> Vector:
        """Return a combination as it is remembered: the less, the better."""
        tail = self._tail(multiples)
        if any(n == SENT or n.startswith(SHARED) for n in multiples) or any(
            isinstance(self.vectors[n], Seen) for n in multiples
        ):
            rows = torch.from_numpy(self.plot.shard.rows)
            return Seen(rows, self._mixed(multiples, True).clone(), tail)
        found = self._sum(multiples)
        if not found.wholes:
            return Span(torch.from_numpy(found.rows), found.coefficients, tail)
        # A state that came from an engine of whole vectors stays one, where it does not cancel.
        table = self.plot.transposed(found.rows, found.coefficients)
        total = torch.cat([table.view(-1), torch.zeros_like(tail)])
        for vector, multiple in found.wholes:
            total.add_(vector, alpha=multiple)
        self._split(total)[1].copy_(tail)
        return total


def _add_at(rows: Tensor, step: Step, values: Tensor, by: float) -> None:
    if isinstance(step.at, slice):
        rows[step.at].add_(values, alpha=by)
    else:
        rows.index_add_(0, step.at, values, alpha=by)
