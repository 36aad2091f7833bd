"""Data that a program already holds: arrays, data frames, and data sets of other libraries.

Libraries are told by what their objects can do, so that none has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed
from ebbflow.core.packing import InputLayout, packed
from ebbflow.core.types import Dataset
from ebbflow.data.own.assembly import Split
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.finishing import complete, texts_array
from ebbflow.data.own.items import (
    Gathered,
    Parts,
    Sample,
    Wanted,
    gather,
    parts_of,
    stack,
    to_numpy,
)
from ebbflow.data.own.naming import Array
from ebbflow.data.own.table_files import Table
from ebbflow.data.own.tables import from_tables

_FORMS = (
    "give a data frame, (X, y), ((X, y), (X_test, y_test)), torch's (train, test), or a "
    "DatasetDict with train and test"
)
_USED = {"label", "device", "test_split", "inputs", "vocabulary"}


def from_python(
    data: Any,
    choices: Choices,
    *,
    test: Any = None,
    column: str | None = None,
    name: str = "custom",
) -> Dataset:
    """Return the data set of an object.

    Args:
        data: The samples, or the training samples.
        choices: How they are read.
        test: The test samples, if ``data`` does not hold them.
        column: The column or key that holds the inputs, if its name does not tell.
        name: What messages and records call the data set.
    """
    place = f"data set {name!r}"
    if isinstance(data, tuple) and len(data) == 2 and _is_frame(data[0]) and test is None:
        data, test = data
    if _is_frame(data):
        return _from_frame(data, test, choices, name)
    choices.refuse_unused(_USED, f"the {place}, which comes from Python")
    wanted = Wanted(column, choices.label, choices.device)
    if hasattr(data, "load_partition") and hasattr(data, "partitioners"):
        train, tested = _from_partitions(data, wanted)
    else:
        train_part, test_part = _parts(data, test)
        train = _gathered(train_part, "train", wanted)
        tested = None if test_part is None else _gathered(test_part, "test", wanted, train)
    if tested is not None and choices.test_split is not None:
        raise EbbflowError(
            f"data.test_split = {choices.test_split:g} has no use with the {place}, which has test "
            "samples: leave it out"
        )
    splits = train.split, None if tested is None else tested.split
    return complete(name, place, splits, choices, train.manner)


def _is_frame(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("columns", "iloc", "dtypes"))


def _is_columns(data: Any) -> bool:
    """Whether an object is a data set of Hugging Face's: columns that have names."""
    return hasattr(data, "column_names") and hasattr(data, "features")


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray | Tensor)


def _from_frame(data: Any, test: Any, choices: Choices, name: str) -> Dataset:
    used = {"label", "device", "test_split", "ignore", "inputs", "vocabulary"}
    choices.refuse_unused(used, f"the data frame {name!r}")
    tables = []
    for frame, which in ((data, "the data frame"), (test, "the data frame of the test samples")):
        if frame is None:
            continue
        if not _is_frame(frame):
            raise EbbflowError(
                f"{which} is of type {type(frame).__name__}; give a data frame with the labels as "
                "one of its columns, as for the training samples"
            )
        names = [str(column) for column in frame.columns]
        twice = [column for column in names if names.count(column) > 1]
        if twice:
            raise EbbflowError(
                f"{which} has two columns called {twice[0]!r}: give every column its own name"
            )
        copied = frame.reset_index(drop=True)
        copied.columns = names
        tables.append(Table(copied, which))
    return from_tables(name, tables[0], tables[1] if len(tables) > 1 else None, choices)


def _parts(data: Any, test: Any) -> tuple[Any, Any]:
    """Return the training and the test samples, the latter None if they are to be drawn."""
    if isinstance(data, Mapping) and not _is_columns(data):
        if "train" not in data or ("test" not in data and test is None):
            raise EbbflowError(
                f"the data hold {listed([str(key) for key in data])}, and not train and test: "
                "name the test samples, as in ebbflow.dataset(data['train'], test=data[...])"
            )
        return data["train"], data["test"] if test is None else test
    pair = isinstance(data, tuple | list) and len(data) == 2
    pair = pair and not isinstance(data[0], Mapping)  # two samples or inputs, no data sets
    if pair and test is None and not _is_samples(data):
        return data[0], data[1]
    return data, test


def _is_samples(data: Any) -> bool:
    """Whether an object is ``(X, y)`` or ``(X, y, device)``: arrays, or lists, of equal length."""
    if not isinstance(data, Sequence) or isinstance(data, str) or len(data) not in (2, 3):
        return False
    if isinstance(data[0], Mapping):  # several inputs, by name
        return all(_is_array(part) for part in data[0].values())
    if not isinstance(data[0], list) or not isinstance(data[1], list):
        return _is_array(data[0])
    # Otherwise a list of samples for training, and one for testing.
    return not (data[0] and isinstance(data[0][0], Mapping | tuple))


def _gathered(data: Any, split: str, wanted: Wanted, like: Gathered | None = None) -> Gathered:
    if _is_columns(data):
        return _from_columns(data, split, wanted, like)
    if _is_samples(data):
        if any(wanted):
            raise EbbflowError(
                f"the {split} data are arrays, whose parts have no names, such as "
                f"{next(name for name in wanted if name)!r}: leave the name out"
            )
        layout: InputLayout | None = None
        if isinstance(data[0], Mapping):
            inputs = {str(name): _array(part, f"{split} data") for name, part in data[0].items()}
            packed_inputs, layout = packed(inputs, f"the {split} data")
            data = (packed_inputs, *data[1:])
        x, y, *owners = (_array(part, f"{split} data") for part in data)
        if x.dtype.kind == "U" and x.ndim == 1:
            x = texts_array(x.tolist())
        named = Split(
            x, y, f"x of {split}", f"y of {split}", owners[0] if owners else None, "device"
        )
        return Gathered(named, pictures=False, layout=layout)
    if data is None or _is_array(data) or not hasattr(data, "__getitem__"):
        raise EbbflowError(f"the {split} data are of type {type(data).__name__}: {_FORMS}")
    return gather(data, split, wanted, like)


def _array(values: Any, what: str) -> Array:
    if isinstance(values, Tensor):
        return to_numpy(values).copy()
    try:
        array = np.array(values)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype == object:
        raise EbbflowError(
            f"the {what} are no array, because rows differ in length or hold objects: bring all "
            "rows to one form"
        )
    return array


# --- Hugging Face and Flower


def _from_columns(
    data: Any, split: str, wanted: Wanted, like: Gathered | None = None, device: str | None = None
) -> Gathered:
    place = f"the {split} data"
    names = [str(name) for name in data.column_names]
    parts = like.parts if like is not None and like.parts is not None else None
    parts = parts or parts_of(names, wanted, place)
    for needed in parts:
        if needed is not None and needed not in names:
            raise EbbflowError(f"{place} lack the column {needed!r}, which the training data have")
    owners: list[Any] = [device] * len(data)
    if device is None and parts.device is not None:
        owners = list(data[parts.device])
    columns = list(data[parts.x]), list(data[parts.y]), owners
    samples = [Sample(*sample) for sample in zip(*columns, strict=True)]
    return stack(samples, split, like)._replace(parts=parts, labels=_label_names(data, parts))


def _label_names(data: Any, parts: Parts) -> tuple[str, ...]:
    feature = data.features.get(parts.y) if isinstance(data.features, Mapping) else None
    return tuple(str(name) for name in getattr(feature, "names", None) or ())


def _from_partitions(data: Any, wanted: Wanted) -> tuple[Gathered, Gathered | None]:
    """Return the partitions of a federated data set of Flower's, each one a device."""
    partitioners = data.partitioners
    if "train" not in partitioners:
        raise EbbflowError(
            f"the federated data set divides {listed([str(key) for key in partitioners])}, and not "
            "train: give it a partitioner for train"
        )
    train = _joined(data, "train", wanted)
    if "test" in partitioners:
        return train, _joined(data, "test", wanted, train)
    return train, _from_columns(data.load_split("test"), "test", wanted, train)


def _joined(data: Any, split: str, wanted: Wanted, like: Gathered | None = None) -> Gathered:
    count = data.partitioners[split].num_partitions
    parts: list[Gathered] = []
    for number in range(count):
        first = parts[0] if parts else like
        partition = data.load_partition(number, split)
        parts.append(_from_columns(partition, split, wanted, first, device=str(number)))
    splits = [part.split for part in parts if len(part.split.y)]
    if not splits:
        raise EbbflowError(f"the partitions of the {split} data hold no samples: give some")
    whole = splits[0]._replace(
        x=np.concatenate([each.x for each in splits]),
        y=np.concatenate([each.y for each in splits]),
        owners=np.concatenate([each.owners for each in splits if each.owners is not None]),
    )
    return parts[0]._replace(split=whole)
