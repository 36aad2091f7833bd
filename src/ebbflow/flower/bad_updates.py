"""Updates as a broken or hostile node might send them, to try what a server does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from ebbflow.flower.wire import EXAMPLES


class BadUpdate(NamedTuple):
    """How a reply is spoilt, and what its refusal says."""

    spoil: Callable[[RecordDict], RecordDict]
    said: str


def _arrays(change: Callable[[dict[str, np.ndarray]], None]) -> Callable[[RecordDict], RecordDict]:
    """Return what changes the arrays of a reply."""

    def spoil(content: RecordDict) -> RecordDict:
        spoilt = RecordDict(dict(content.metric_records))
        for name, record in content.array_records.items():
            arrays = {key: np.array(array.numpy()) for key, array in record.items()}
            change(arrays)
            spoilt[name] = ArrayRecord({key: Array(value) for key, value in arrays.items()})
        return spoilt

    return spoil


def _examples(count: float) -> Callable[[RecordDict], RecordDict]:
    """Return what changes the number of samples in a reply."""

    def spoil(content: RecordDict) -> RecordDict:
        spoilt = RecordDict(dict(content.array_records))
        for name, record in content.metric_records.items():
            spoilt[name] = MetricRecord({**record, EXAMPLES: count})
        return spoilt

    return spoil


def _first(arrays: dict[str, np.ndarray]) -> str:
    """Return the first array of numbers with a fraction that has entries."""
    return next(name for name, a in arrays.items() if a.dtype.kind == "f" and a.size)


def _entry(value: float) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[_first(arrays)].reshape(-1)[0] = value

    return change


def _missing(arrays: dict[str, np.ndarray]) -> None:
    del arrays[_first(arrays)]


def _added(arrays: dict[str, np.ndarray]) -> None:
    arrays["more"] = np.zeros(3, dtype=np.float32)


def _reshaped(arrays: dict[str, np.ndarray]) -> None:
    name = _first(arrays)
    arrays[name] = np.zeros((7, 11), dtype=arrays[name].dtype)


def _doubled(arrays: dict[str, np.ndarray]) -> None:
    name = _first(arrays)
    arrays[name] = arrays[name].astype(np.float64)


def _holding(kind: str) -> Callable[[RecordDict], RecordDict]:
    """Return what puts entries of another type into an array that still calls itself what it was.

    Whoever goes by what it says measures nothing: only real numbers have a length.
    """

    def spoil(content: RecordDict) -> RecordDict:
        for record in content.array_records.values():
            name = _first({key: array.numpy() for key, array in record.items()})
            said, other = record[name], np.full(record[name].shape, 10**6).astype(kind)
            record[name] = Array(said.dtype, said.shape, said.stype, Array(other).data)
        return content

    return spoil


def _renamed(content: RecordDict) -> RecordDict:
    """Give the record of arrays another name."""
    (arrays,) = content.array_records.values()
    return RecordDict({"mine": arrays, **content.metric_records})


def _renamed_metrics(content: RecordDict) -> RecordDict:
    """Give the record of metrics another name."""
    (metrics,) = content.metric_records.values()
    return RecordDict({**content.array_records, "mine": metrics})


def _long(arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            arrays[name] = (array + 1e5).astype(array.dtype)


BAD_UPDATES = {
    "NaN": BadUpdate(_arrays(_entry(float("nan"))), "not finite"),
    "infinity": BadUpdate(_arrays(_entry(float("inf"))), "not finite"),
    "another shape": BadUpdate(_arrays(_reshaped), "has the shape (7, 11) instead of"),
    "a missing array": BadUpdate(_arrays(_missing), "is missing"),
    "an array too many": BadUpdate(_arrays(_added), "the array more is one too many"),
    "another type": BadUpdate(_arrays(_doubled), "has the type float64 instead of float32"),
    "integers called float32": BadUpdate(_holding("<i8"), "says float32 and holds int64"),
    "complex numbers called float32": BadUpdate(
        _holding("<c16"), "says float32 and holds complex128"
    ),
    "texts called float32": BadUpdate(_holding("<U7"), "says float32 and holds <U7"),
    "another order of bytes": BadUpdate(_holding(">f4"), "says float32 and holds >f4"),
    "another name for the arrays": BadUpdate(_renamed, "arrays is called mine instead of"),
    "another name for the metrics": BadUpdate(
        _renamed_metrics, "metrics is called mine instead of metrics"
    ),
    "no samples": BadUpdate(_examples(0), "num-examples is 0"),
    "-1 samples": BadUpdate(_examples(-1), "num-examples is -1"),
    "1e30 samples": BadUpdate(_examples(1e30), "num-examples is 1e+30"),
    "thousands of times too long": BadUpdate(_arrays(_long), "times the median length"),
}
"""The kinds of bad updates, by what is wrong with them."""
