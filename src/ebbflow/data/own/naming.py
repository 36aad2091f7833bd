"""Numbers for what a user calls by names: labels, and the devices that samples belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed

Array = NDArray[Any]
"""An array whose type is not known yet."""

# Python refuses to read a number of more than 4300 digits.
_DIGITS = re.compile(r"(\d{1,18})")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


class Numbered(NamedTuple):
    """The numbers of values in the training and the test set, and the values' names by number."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    names: tuple[str, ...]


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names as people do, by the numbers in them.

    >>> natural_order(["ward 10", "ward 2", "annexe"])
    ['annexe', 'ward 2', 'ward 10']
    """

    def key(name: str) -> tuple[list[str | int], str]:
        parts = _DIGITS.split(name)
        return [int(part) if at % 2 else part for at, part in enumerate(parts)], name

    texts = list(names)
    if all(map(_NUMBER.fullmatch, texts)):
        return sorted(texts, key=lambda text: (float(text), text))
    return sorted(texts, key=key)


def numbered(train: Array, test: Array | None) -> Numbered:
    """Give the values of two arrays of texts or of whole numbers numbers, in natural order.

    >>> numbered(np.array(["b", "a"]), np.array(["b"])).names
    ('a', 'b')
    """
    if test is None:
        test = train[:0]
    both = np.concatenate([train, test])
    found = np.unique(both)
    if found.dtype.kind in "US":
        order = natural_order(found.tolist())
        number = {name: place for place, name in enumerate(order)}
        places = np.array([number[name] for name in found.tolist()], dtype=np.int64)
        names = tuple(order)
    else:
        places = np.arange(len(found), dtype=np.int64)
        names = tuple(str(value) for value in found.tolist())

    def numbers(values: Array) -> NDArray[np.int64]:
        return places[np.searchsorted(found, values.astype(found.dtype))]

    return Numbered(numbers(train), numbers(test), names)


def as_texts(values: Array) -> Array:
    """Return an array of texts as such: bytes become texts, everything else stays as it is."""
    if values.dtype.kind != "S":
        return values
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError:
        return values


def one_hot_classes(y: Array) -> Array | None:
    """Return class numbers from rows of zeros with a single one each, or None from others."""
    if y.ndim != 2 or y.shape[1] < 2 or y.dtype.kind not in "biuf" or not len(y):
        return None
    if not (((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all()):
        return None
    classes: Array = y.argmax(axis=1)
    return classes


def check_owners(place: str, name: str, owners: Array, samples: int) -> Array:
    """Return the owners of samples, if every sample has one that can be told from others."""
    owners = as_texts(owners)
    if owners.dtype.kind not in "iuU":
        raise EbbflowError(
            f"{place}: the owners {name} are of type {owners.dtype}; give whole numbers or texts, "
            "one a sample."
        )
    if owners.shape != (samples,):
        raise EbbflowError(
            f"{place}: the owners {name} have shape {owners.shape} where there are {samples} "
            "samples; give every sample one owner."
        )
    if owners.dtype.kind == "U":
        empty = np.char.str_len(owners) == 0
        if empty.any():
            raise EbbflowError(
                f"{place}: sample {int(empty.argmax())} of {name} has an owner without a name; "
                "name the device that it belongs to."
            )
    return owners


def refuse_untrained(place: str, labels: Numbered) -> None:
    """Raise an error if a label is only in the test set, where nobody could have learnt it."""
    untrained = untrained_labels(labels)
    if untrained:
        raise EbbflowError(
            f"{place}: only test samples have the label{'s' if len(untrained) > 1 else ''} "
            f"{listed(untrained)}, so that no device can learn it; add training samples, or leave "
            "these test samples out."
        )


def untrained_labels(labels: Numbered) -> list[str]:
    """Return the names of labels that only the test set has."""
    untrained = set(labels.test.tolist()) - set(labels.train.tolist())
    return [repr(labels.names[number]) for number in sorted(untrained)]


def names_worth_keeping(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names, or nothing if they say no more than the numbers do.

    >>> names_worth_keeping(("0", "1")), names_worth_keeping(("1", "2"))
    ((), ('1', '2'))
    """
    return () if names == tuple(map(str, range(len(names)))) else names
