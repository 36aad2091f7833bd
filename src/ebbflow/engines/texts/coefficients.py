"""One device's round in terms of coefficients of its texts; see `sample_space`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.types import BagOfWords, Indices, Output, State
from ebbflow.engines.texts.combination import combined, multiples_of
from ebbflow.engines.texts.device_texts import DeviceTexts, TextRows, TextStep, places
from ebbflow.engines.texts.loss_gradients import slope
from ebbflow.engines.texts.packed_states import KnownVector, TextFeatures, TextSpan, packed
from ebbflow.engines.texts.symbolic import (
    OWN,
    SENT,
    SHARED,
    START,
    SymbolicHooks,
    Trajectory,
)
from ebbflow.engines.texts.totals import apart


class SpanSum(NamedTuple):
    """A vector that is sent: its table is A^T coefficients plus multiples of whole vectors.

    ``wholes`` are those vectors by name, each with its multiple.
    """

    rows: Indices
    coefficients: Tensor
    wholes: dict[str, tuple[Tensor, float]]
    tail: Tensor


class SpanUpload(NamedTuple):
    """A device's upload: its vectors as sums by name ("" is delta), and everything else."""

    sums: dict[str, SpanSum]
    rest: dict[str, Tensor]


class DeviceRound:
    """One device's round in one lane. ``step`` is the step that has been reached, from 1."""

    def __init__(
        self,
        bag_of_words: BagOfWords,
        hooks: SymbolicHooks,
        texts: DeviceTexts,
        state: State | None,
    ) -> None:
        self.bag_of_words, self.hooks, self.texts = bag_of_words, hooks, texts
        self.step = 1
        self.client, vectors = (hooks.fresh, {}) if state is None else hooks.remembered(state)
        self.vectors: dict[str, KnownVector] = {**hooks.vectors, **vectors}
        self._table, self._sent_tail = self._split(hooks.lane.shared.theta)
        self._features: dict[tuple[str, bool], Tensor] = {}

    def trained(self, samples: Tensor, where: str) -> tuple[SpanUpload, State]:
        """Train the device; return what it sends and what it remembers."""
        most, lr = torch.finfo(samples.dtype).max, self.hooks.lane.lr
        if lr > most:
            raise TrainingError(
                f"{where}, step 1: the rate {lr:g} is beyond {samples.dtype}; lower lr.initial"
            )
        trajectory = self.hooks.trajectory(self.client, len(self.texts.steps))
        moved, tail = self._walk(trajectory)
        if not (vector.all_finite(moved) and vector.all_finite(tail)):
            self._walk(trajectory, where)  # names the step
        # theta_H = sum_v t_H[v] v - own holds for the tail, too, and defines own's tail.
        own = self._tail(trajectory.multiples[-1]).sub_(tail)
        self.vectors[OWN] = TextSpan(self.texts.rows, moved, own)
        sent, after = self.hooks.upload(self.client, trajectory, samples)
        vectors, rest = apart(sent, lambda value: combined(value) is not None)
        sums = {name: self._sum(multiples_of(value)) for name, value in vectors.items()}
        memory = {
            name: value if combined(value) is None else self._memory(multiples_of(value))
            for name, value in after.items()
        }
        return SpanUpload(sums, rest), packed(memory)

    # --- the steps ------------------------------------------------------------------------------

    def _walk(self, trajectory: Trajectory, where: str | None = None) -> tuple[Tensor, Tensor]:
        """Make the steps; return M_H and the tail. With ``where``, check every iterate."""
        texts, momentum, lr = self.texts, self.hooks.recipe.momentum, self.hooks.lane.lr
        anchors = self._anchors()
        start = (
            _Mean(texts.rows, self._table, self._sent_tail)
            if self.hooks.algorithm.start_gradient
            else None
        )
        tail = self._sent_tail.clone()
        push, speed = self._tail(trajectory.shift), torch.zeros_like(tail)
        moved = tail.new_zeros(len(texts.rows), self.bag_of_words.width)
        velocity = torch.zeros_like(moved)
        for number, step in enumerate(texts.steps):
            self.step = number + 1
            theirs = {
                name: Output(step.of(output.logits), step.of(output.features))
                for name, output in anchors.items()
            }
            if start is not None:
                start.add(
                    step, *self._slope(self._sent_tail, step.of(self._of(SENT)), step, theirs)
                )
            z = self._iterate(trajectory.multiples[number], step)
            if step.before:
                near = step.of(texts.gram(texts.own, texts.own.rows))[:, : step.before]
                z = torch.addmm(z, near, moved[: step.before], alpha=-1)
            share, of_tail = self._slope(tail, z, step, theirs)
            # In place on the texts that have occurred so far; other coefficients are zero.
            known = velocity[: step.before].mul_(momentum)
            speed.mul_(momentum).add_(of_tail, alpha=trajectory.slope).add_(push)
            if trajectory.pull:
                known.sub_(moved[: step.before], alpha=trajectory.pull)
                speed.add_(tail, alpha=trajectory.pull)
            _add_at(velocity, step, share, trajectory.slope)
            moved[: step.after].add_(velocity[: step.after], alpha=lr)
            tail.sub_(speed, alpha=lr)
            if where and not (vector.all_finite(moved) and vector.all_finite(tail)):
                raise TrainingError(
                    f"{where}, step {number + 1}: the local model is no longer finite; lower "
                    f"lr.initial (now {lr:g} in this round) or set local.radius"
                )
        self.step = len(texts.steps) + 1
        if start is not None:
            self.vectors[START] = start.mean()
        return moved, tail

    def _slope(
        self, tail: Tensor, z: Tensor, step: TextStep, anchors: dict[str, Output]
    ) -> tuple[Tensor, Tensor]:
        """Return the loss's derivative in the features and in the tail."""
        output = Output(self.bag_of_words.head(tail, z), z)
        cotangent = slope(self.hooks.algorithm, output, step.batch, anchors, self.client)
        return self.bag_of_words.pull(tail, z, cotangent)

    def _iterate(self, multiples: Mapping[str, float], step: TextStep) -> Tensor:
        """Return the step's features at the iterate, without what the own steps have moved."""
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
        for name, model in self.hooks.anchors(self.client).items():
            if combined(model.theta) is None:
                table, tail = self._split(model.theta)
                features = self.texts.own.matrix.product(table)
            else:
                multiples = multiples_of(model.theta)
                features, tail = self._mixed(multiples, False), self._tail(multiples)
            outputs[name] = Output(self.bag_of_words.head(tail, features), features)
        return outputs

    # --- vectors --------------------------------------------------------------------------------

    def _split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        vocabulary, width = self.bag_of_words.vocabulary, self.bag_of_words.width
        return vector[: vocabulary * width].view(vocabulary, width), vector[vocabulary * width :]

    def _tail(self, multiples: Mapping[str, float]) -> Tensor:
        """Return the tail of a combination."""
        total = torch.zeros_like(self._sent_tail)
        for name, multiple in multiples.items():
            vector = self.vectors[name]
            tail = self._split(vector)[1] if isinstance(vector, Tensor) else vector.tail
            total.add_(tail, alpha=multiple)
        return total

    def _of(self, name: str, everywhere: bool = False) -> Tensor:
        """Return A v for a named vector, on the round's texts or on all of the device's."""
        texts = self.texts.shard if everywhere else self.texts.own
        key = name, texts is self.texts.own
        if key not in self._features:
            self._features[key] = self._product(self.vectors[name], texts)
        return self._features[key]

    def _product(self, vector: KnownVector, texts: TextRows) -> Tensor:
        if isinstance(vector, Tensor):
            return texts.matrix.product(self._split(vector)[0])
        others = vector.rows.numpy()
        if isinstance(vector, TextSpan):
            return self.texts.gram(texts, others) @ vector.coefficients
        order = np.argsort(others)
        at = places(texts.rows, others[order])
        if at is None:
            raise EbbflowError(
                "a device remembers the features of other texts than it has now: its samples must "
                "stay the same as long as its state is kept"
            )
        return vector.features[torch.from_numpy(order)[at]]

    def _mixed(self, multiples: Mapping[str, float], everywhere: bool) -> Tensor:
        """Return the features of a combination."""
        if set(multiples.items()) == {(SENT, 1.0)}:
            return self._of(SENT, everywhere)
        texts = self.texts.shard if everywhere else self.texts.own
        total = self._table.new_zeros(len(texts.rows), self.bag_of_words.width)
        for name, multiple in multiples.items():
            total.add_(self._of(name, everywhere), alpha=multiple)
        return total

    def _sum(self, multiples: Mapping[str, float]) -> SpanSum:
        """Return a combination in terms that can be added up over devices."""
        wholes: dict[str, tuple[Tensor, float]] = {}
        spans: list[tuple[TextSpan, float]] = []
        for name, multiple in multiples.items():
            vector = self.vectors[name]
            if isinstance(vector, Tensor):
                wholes[name] = vector, multiple
            elif isinstance(vector, TextSpan):
                spans.append((vector, multiple))
            else:
                raise EbbflowError(f"of {name} only features are known")
        rows, coefficients = self._joined(spans)
        return SpanSum(rows, coefficients, wholes, self._tail(multiples))

    def _joined(self, spans: Sequence[tuple[TextSpan, float]]) -> tuple[Indices, Tensor]:
        if len(spans) == 1:
            ((only, multiple),) = spans
            return only.rows.numpy(), only.coefficients * multiple
        every = [span.rows.numpy() for span, _ in spans]
        rows = np.unique(np.concatenate([*every, np.zeros(0, dtype=np.int64)]))
        total = self._table.new_zeros(len(rows), self.bag_of_words.width)
        for mine, (span, multiple) in zip(every, spans, strict=True):
            at = torch.from_numpy(np.searchsorted(rows, mine))
            total.index_add_(0, at, span.coefficients, alpha=multiple)
        return rows, total

    def _memory(self, multiples: Mapping[str, float]) -> KnownVector:
        """Return a combination in the smallest form that can be remembered."""
        tail = self._tail(multiples)
        if any(n == SENT or n.startswith(SHARED) for n in multiples) or any(
            isinstance(self.vectors[n], TextFeatures) for n in multiples
        ):
            rows = torch.from_numpy(self.texts.shard.rows)
            return TextFeatures(rows, self._mixed(multiples, True).clone(), tail)
        terms = self._sum(multiples)
        if not terms.wholes:
            return TextSpan(torch.from_numpy(terms.rows), terms.coefficients, tail)
        # A whole vector from another engine stays one, unless it cancels.
        table = self.texts.transposed(terms.rows, terms.coefficients)
        total = torch.cat([table.view(-1), torch.zeros_like(tail)])
        for whole, multiple in terms.wholes.values():
            total.add_(whole, alpha=multiple)
        self._split(total)[1].copy_(tail)
        return total


class _Mean:
    """The mean gradient over mini-batches, each weighted by its number of texts."""

    def __init__(self, rows: Tensor, table: Tensor, tail: Tensor) -> None:
        self._rows = rows
        self._coefficients = table.new_zeros(len(rows), table.shape[1])
        self._tail, self._seen = torch.zeros_like(tail), 0

    def add(self, step: TextStep, share: Tensor, tail: Tensor) -> None:
        """Add one mini-batch."""
        count = len(step.batch.y)
        _add_at(self._coefficients, step, share, count)
        self._tail.add_(tail, alpha=count)
        self._seen += count

    def mean(self) -> TextSpan:
        """Return the mean so far."""
        by = 1 / max(self._seen, 1)
        return TextSpan(self._rows, self._coefficients * by, self._tail * by)


def _add_at(rows: Tensor, step: TextStep, values: Tensor, by: float) -> None:
    if isinstance(step.at, slice):
        rows[step.at].add_(values, alpha=by)
    else:
        rows.index_add_(0, step.at, values, alpha=by)
