"""Refuse an update before a strategy sees it, with a reason.

Flower's strategies average whatever arrives: a single NaN, a negative number of samples or an
update a thousand times too long spoils the model for all, and a missing array ends the run. A
refused reply is simply missing from the round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.crowd import one_line
from ebbflow.flower.wire import EXAMPLES

MOST_EXAMPLES = 1e9
"""No device has more samples than this; a count beyond it is a mistake or a lie."""
MOST_LOSS = 1e30
"""No power of a loss that updates are weighted by is more: times an update, float32 holds it."""

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""The shape and the type of every array in a reply, by name."""

Lengths = Callable[[RecordDict], Mapping[str, float]]
"""Returns how long each part of a reply is, above all the update: how far it moves the model. A
length is not finite if an entry of the part is not."""

T = TypeVar("T")


class Expected(NamedTuple):
    """The arrays that a reply must have, how they are measured, and the metrics that are used.

    ``record`` is what the record that holds them must be called; None: as in most replies.
    ``metrics`` says of each metric that the strategy makes its model of how much it may be; none
    may be below zero.
    """

    shapes: Shapes
    lengths: Lengths
    record: str | None = None
    metrics: Mapping[str, float] = MappingProxyType({})


class Usual(NamedTuple):
    """What most replies have, as Flower demands of all.

    ``arrays`` and ``metrics`` are what they call their records; ``kinds`` says of each metric what
    it is: a number, or a list of so many.
    """

    arrays: str
    metrics: str
    kinds: Mapping[str, str]


@dataclass(frozen=True)
class Checks:
    """What an update must be like.

    Attributes:
        norm: How many times the median length of a round's updates is too long; None: no limit. It
            takes three updates: of two, none is longer than twice their median.
        most_examples: The most samples that a device may claim to have.
        weighted_by: The metric that holds the number of samples.
    """

    norm: float | None = 100.0
    most_examples: float = MOST_EXAMPLES
    weighted_by: str = EXAMPLES

    def __post_init__(self) -> None:
        if self.norm is not None and not self.norm > 1:
            raise EbbflowError(
                f"norm is {self.norm}: give a number above 1, or None for no limit on lengths"
            )

    def refusals(self, replies: Mapping[int, Message], expected: Expected) -> dict[int, str]:
        """Return why replies with arrays are refused, by device."""
        refused: dict[int, str] = {}
        lengths: dict[int, Mapping[str, float]] = {}
        usual = _usual_in(replies)
        for device, reply in replies.items():
            why = _wrong_arrays(reply.content, expected, usual) or self._wrong_metrics(
                reply.content, usual, expected.metrics
            )
            if why is None:
                found = expected.lengths(reply.content)
                odd = next((name for name in found if not math.isfinite(found[name])), None)
                if odd is None:
                    lengths[device] = found
                else:
                    why = f"the {odd} is not finite"
            if why is not None:
                refused[device] = one_line(why)  # it may name what a stranger has named
        if self.norm is not None and lengths:
            for name in next(iter(lengths.values())):
                middle = median(found[name] for found in lengths.values())
                for device, found in lengths.items():
                    if found[name] > self.norm * middle > 0:
                        times = f"{found[name] / middle:.3g} times the median length"
                        refused.setdefault(device, f"the {name} is {times}")
        return dict(sorted(refused.items()))

    def evaluation_refusals(self, replies: Mapping[int, Message]) -> dict[int, str]:
        """Return why replies to a message to evaluate cannot be averaged, by device."""
        usual = _usual_in(replies)
        found = {
            device: self._wrong_metrics(reply.content, usual) or odd_metric(reply.content)
            for device, reply in replies.items()
        }
        return {device: one_line(why) for device, why in found.items() if why is not None}

    def unequal(self, replies: Mapping[int, Message]) -> dict[int, str]:
        """Return who claims another number of samples than most, by device.

        Flower counts what noise costs only where all count alike, and stops otherwise.
        """
        counts = {
            device: cast(float, metrics[self.weighted_by])
            for device, reply in replies.items()
            for metrics in reply.content.metric_records.values()
        }
        usual = _most_common(counts.values())
        return {
            device: f"{self.weighted_by} is {count:g}, and with an accountant it must be "
            f"{usual:g} as in most updates"
            for device, count in counts.items()
            if count != usual
        }

    def count_alike(self, replies: Mapping[int, Message]) -> str:
        """Let all updates count alike; return what to say if they would not have.

        What noise must hide is what one device can change, and Flower takes that to be one share
        of as many as there are updates.
        """
        records = [
            metrics
            for reply in replies.values()
            for metrics in reply.content.metric_records.values()
        ]
        counts = [cast(float, metrics[self.weighted_by]) for metrics in records]
        if len(set(counts)) < 2:
            return ""
        for metrics in records:
            metrics[self.weighted_by] = 1
        return (
            f"{self.weighted_by} is from {min(counts):g} to {max(counts):g}, and the noise is made "
            "for updates that count alike: they do, whatever it is"
        )

    def _wrong_metrics(
        self, content: RecordDict, usual: Usual, used: Mapping[str, float] = MappingProxyType({})
    ) -> str | None:
        why = _wrong_record("metrics", content.metric_records, usual.metrics)
        if why is not None:
            return why
        (metrics,) = content.metric_records.values()
        return (
            self._wrong_count(metrics)
            or _wrong_number(metrics, used)
            or _unlike_others(_kinds(metrics), usual.kinds)
        )

    def _wrong_count(self, metrics: MetricRecord) -> str | None:
        count = metrics.get(self.weighted_by)
        if count is None:
            return f"the reply does not say its {self.weighted_by}"
        if isinstance(count, list) or not math.isfinite(count):
            return f"{self.weighted_by} is {count!r}, not a number"
        if not 0 < count <= self.most_examples:
            return (
                f"{self.weighted_by} is {count:g}, not above 0 and at most {self.most_examples:g}"
            )
        return None


def another_of(sent: ArrayRecord) -> Expected:
    """Return what a model must be like that comes back for the one that was sent."""
    return Expected(shapes_of(sent), _distance_from(sent))


def shapes_of(arrays: ArrayRecord) -> Shapes:
    """Return the shape and type of each array."""
    return {name: (tuple(array.shape), str(array.dtype)) for name, array in arrays.items()}


def _distance_from(sent: ArrayRecord) -> Lengths:
    """Return the function that measures how far a model in a reply lies from the one sent."""
    before = {name: array.numpy() for name, array in sent.items()}

    def lengths(content: RecordDict) -> dict[str, float]:
        (arrays,) = content.array_records.values()
        squares = 0.0
        for name, array in arrays.items():
            after = array.numpy()
            if after.dtype.kind == "f":
                moved = after.astype(np.float64) - before[name].astype(np.float64)
                squares += float(np.square(moved).sum())
        return {"update": math.sqrt(squares)}

    return lengths


def _wrong_record(what: str, records: Mapping[str, object], wanted: str) -> str | None:
    """Return why the records of arrays, or of metrics, are not the one that a reply must have."""
    if len(records) != 1:
        return f"the reply has {len(records)} records of {what} instead of one"
    (called,) = records
    if called != wanted:
        return f"the record of {what} is called {called} instead of {wanted}"
    return None


def _wrong_arrays(content: RecordDict, expected: Expected, usual: Usual) -> str | None:
    why = _wrong_record("arrays", content.array_records, expected.record or usual.arrays)
    if why is not None:
        return why
    (arrays,) = content.array_records.values()
    found = shapes_of(arrays)
    for name in [*expected.shapes, *found]:
        if name not in found:
            return f"the array {name} is missing"
        if name not in expected.shapes:
            return f"the array {name} is one too many"
        (shape, kind), (own_shape, own_kind) = found[name], expected.shapes[name]
        if shape != own_shape:
            return f"the array {name} has the shape {shape} instead of {own_shape}"
        if kind != own_kind:
            return f"the array {name} has the type {kind} instead of {own_kind}"
    return next((why for name in found if (why := _unreadable(arrays, name))), None)


def _unreadable(arrays: ArrayRecord, name: str) -> str | None:
    """Return what is wrong with an array whose bytes are not what its shape and type say."""
    says = arrays[name]
    try:
        held = says.numpy()
        shape, kind = held.shape, held.dtype
    except Exception as error:  # whatever a stranger's bytes make numpy raise
        return f"the array {name} cannot be read ({type(error).__name__})"
    if shape != tuple(says.shape):
        return f"the array {name} says {says.shape} and holds {shape}"
    if str(kind) != says.dtype:  # also where only the order of the bytes is another
        return f"the array {name} says {says.dtype} and holds {kind}"
    return None


def _wrong_number(metrics: MetricRecord, used: Mapping[str, float]) -> str | None:
    """Return what is wrong with the metrics that a model is made of."""
    for name, most in used.items():
        value = metrics.get(name)
        if value is None:
            return f"the reply does not say its {name}"
        if isinstance(value, list) or not 0 <= value <= most:
            return f"{name} is {value!r}, not a number from 0 to {most:g}"
    return None


def _unlike_others(found: Mapping[str, str], usual: Mapping[str, str]) -> str | None:
    """Return which metric is not what it is in most replies."""
    odd = sorted(usual.keys() ^ found.keys())
    if odd:
        return f"the metric {odd[0]} is in this reply or in the others, not in all"
    other = next((name for name in found if found[name] != usual[name]), None)
    if other is None:
        return None
    return f"the metric {other} is {found[other]}, and in the others {usual[other]}"


def odd_metric(content: RecordDict) -> str | None:
    """Return which of the metrics in a reply is not finite, if one is."""
    for metrics in content.metric_records.values():
        for name, value in metrics.items():
            for number in value if isinstance(value, list) else [value]:
                if not math.isfinite(number):
                    return f"{name} is {number}"
    return None


def samples_claimed(metrics: Mapping[str, Any]) -> float | None:
    """Return how many samples a device says it has, if that can be; one if it does not say."""
    count = metrics.get(EXAMPLES, 1)
    return count if isinstance(count, int | float) and 1 <= count <= MOST_EXAMPLES else None


def _usual_in(replies: Mapping[int, Message]) -> Usual:
    """Return what most replies have; one with several records instead of one has no vote."""
    contents = [reply.content for reply in replies.values()]
    arrays = [each.array_records for each in contents if len(each.array_records) == 1]
    metrics = [each.metric_records for each in contents if len(each.metric_records) == 1]
    kinds = (tuple(sorted(_kinds(record).items())) for each in metrics for record in each.values())
    return Usual(
        _most_common(name for each in arrays for name in each) or "",
        _most_common(name for each in metrics for name in each) or "",
        dict(_most_common(kinds) or ()),
    )


def _kinds(metrics: MetricRecord) -> dict[str, str]:
    return {
        name: f"a list of {len(value)}" if isinstance(value, list) else "a number"
        for name, value in metrics.items()
    }


def _most_common(values: Iterable[T]) -> T | None:
    found = Counter(values).most_common(1)
    return found[0][0] if found else None
