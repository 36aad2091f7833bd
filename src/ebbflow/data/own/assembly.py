"""From a user's arrays to a data set: what is checked and what is done is the same for all."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import LABELLED, TaskName
from ebbflow.core.names import listed, printable
from ebbflow.core.packing import InputLayout
from ebbflow.core.types import Dataset, Examples, Pixels
from ebbflow.data.own.choices import Inputs
from ebbflow.data.own.naming import (
    Array,
    as_texts,
    check_owners,
    names_worth_keeping,
    numbered,
    one_hot_classes,
    refuse_untrained,
    untrained_labels,
)
from ebbflow.data.own.splitting import held_out
from ebbflow.data.own.truths import truths_of

MAX_CLASSES = 100_000
"""More classes than this are a mistake, such as identifiers taken for labels."""


class Split(NamedTuple):
    """The user's arrays, and the names by which errors refer to them."""

    x: Array
    y: Array
    x_name: str
    y_name: str
    owners: Array | None = None
    owners_name: str = ""

    def rows(self, chosen: NDArray[np.bool_]) -> Split:
        """Return some of the samples."""
        owners = None if self.owners is None else self.owners[chosen]
        return self._replace(x=self.x[chosen], y=self.y[chosen], owners=owners)


class Manner(NamedTuple):
    """How arrays become samples.

    Attributes:
        inputs: What the inputs are.
        pictures: Whether they are pictures, uint8 ``[N, C, H, W]``, that stay so.
        pixels: How pictures are normalised when they are used.
        labels: The names of labels that are numbers already.
        unlearnt: Whether labels may be in the test set only.
        task: What is to be predicted.
        layout: Where several inputs of a sample lie, if it has more than one.
        notes: Sentences on what was done before.
    """

    inputs: Inputs = "auto"
    pictures: bool = False
    pixels: Pixels | None = None
    labels: tuple[str, ...] = ()
    unlearnt: bool = False
    task: TaskName = "classes"
    layout: InputLayout | None = None
    notes: tuple[str, ...] = ()


def divided(
    place: str, split: Split, share: float, task: TaskName = "classes"
) -> tuple[Split, Split, tuple[str, ...]]:
    """Set test samples aside; return the training set, the test set, and what was done."""
    checked = _checked_owners(place, split)
    if task not in LABELLED:
        _check_inputs(place, checked)
        _check_count(place, checked)
        held = held_out(place, share, np.zeros(len(split.y), dtype=np.int64), checked.owners)
        return checked.rows(~held.test), checked.rows(held.test), held.notes
    classes = one_hot_classes(split.y)
    y = split.y if classes is None else classes
    if y.ndim != 1 or len(y) != len(split.x):
        _check_split(place, checked)
    held = held_out(place, share, y, checked.owners)
    return checked.rows(~held.test), checked.rows(held.test), held.notes


def assemble(
    name: str, place: str, train: Split, test: Split, manner: Manner | None = None
) -> Dataset:
    """Check each split and both against each other, and return the data set."""
    manner = manner or Manner()
    if manner.task not in LABELLED:
        return _with_other_truth(name, place, train, test, manner)
    train, test, labels, notes = _class_numbers(place, train, test, manner.unlearnt)
    labels = labels or manner.labels
    for split in (train, test):
        _check_split(place, split)
    _check_alike(place, train, test)
    classes = 1 + max(int(train.y.max()), int(test.y.max()))
    if classes > MAX_CLASSES:
        raise EbbflowError(
            f"{place}: the greatest label is {classes - 1}, and more than {MAX_CLASSES} classes "
            "are not supported; number the classes from 0 without gaps."
        )
    train, test, devices = _device_numbers(place, train, test)
    notes += _told_of_whole_numbers(train, manner)
    return Dataset(
        name,
        _examples(place, train, manner),
        _examples(place, test, manner),
        max(classes, len(labels)),
        devices=devices,
        labels=labels,
        # Columns and files may be called anything, and notes are shown in a terminal.
        notes=tuple(map(printable, (*manner.notes, *notes))),
        inputs=manner.layout,
    )


def _with_other_truth(name: str, place: str, train: Split, test: Split, manner: Manner) -> Dataset:
    """Return the data set of a task whose truth is not one class for each sample."""
    for split in (train, test):
        _check_inputs(place, split)
        _check_count(place, split)
    _check_alike(place, train, test)
    found = truths_of(place, manner.task, train.y, test.y, train.y_name)
    train, test, devices = _device_numbers(place, train, test)
    nothing = np.zeros(0, dtype=np.int64)  # the truth is put in its place below

    def examples(split: Split, truth: Tensor) -> Examples:
        return replace(_examples(place, split._replace(y=nothing), manner), y=truth)

    notes = (*manner.notes, *found.notes, *_told_of_whole_numbers(train, manner))
    return Dataset(
        name,
        examples(train, found.train),
        examples(test, found.test),
        found.outputs,
        devices=devices,
        notes=tuple(map(printable, notes)),
        scale=found.scale,
        inputs=manner.layout,
    )


def _class_numbers(
    place: str, train: Split, test: Split, unlearnt: bool
) -> tuple[Split, Split, tuple[str, ...], tuple[str, ...]]:
    """Turn texts or rows with a single one into class numbers, if both splits have them."""
    one_hot = [one_hot_classes(split.y) for split in (train, test)]
    if one_hot[0] is not None and one_hot[1] is not None and train.y.shape[1] == test.y.shape[1]:
        note = f"the labels of {place} are rows with a single one, whose place is the class"
        return train._replace(y=one_hot[0]), test._replace(y=one_hot[1]), (), (note,)
    y = [as_texts(split.y) for split in (train, test)]
    if not all(each.dtype.kind == "U" and each.ndim == 1 for each in y):
        return train, test, (), ()
    for split, each in zip((train, test), y, strict=True):
        empty = np.char.str_len(each) == 0
        if empty.any():
            raise EbbflowError(
                f"{place}: sample {int(empty.argmax())} of {split.y_name} has an empty label; "
                "name its class, or leave the sample out."
            )
    found = numbered(*y)
    names = names_worth_keeping(found.names)
    notes = [f"the {len(names)} labels of {place} are numbered in order of their names"]
    if not unlearnt:
        refuse_untrained(place, found)
    elif untrained := untrained_labels(found):
        notes.append(f"only test samples of {place} have the labels {listed(untrained)}")
    train, test = train._replace(y=found.train), test._replace(y=found.test)
    return train, test, names, tuple(notes) if names else ()


def _checked_owners(place: str, split: Split) -> Split:
    if split.owners is None:
        return split
    owners = check_owners(place, split.owners_name, split.owners, len(split.x))
    return split._replace(owners=owners)


def _device_numbers(place: str, train: Split, test: Split) -> tuple[Split, Split, tuple[str, ...]]:
    """Give the owners of samples numbers that both splits have in common."""
    train, test = _checked_owners(place, train), _checked_owners(place, test)
    if train.owners is None:
        if test.owners is not None:
            raise EbbflowError(
                f"{place} names the owners of its test samples, {test.owners_name}, and not of its "
                "training samples; name both, or those of the training samples."
            )
        return train, test, ()
    kinds = {each.owners.dtype.kind == "U" for each in (train, test) if each.owners is not None}
    if len(kinds) > 1:
        raise EbbflowError(
            f"{place}: {train.owners_name} and {test.owners_name} are numbers in one and texts in "
            "the other; name devices in the same way in both."
        )
    found = numbered(train.owners, test.owners)
    tested = None if test.owners is None else found.test
    return train._replace(owners=found.train), test._replace(owners=tested), found.names


def _check_alike(place: str, train: Split, test: Split) -> None:
    if train.x.shape[1:] != test.x.shape[1:]:
        raise EbbflowError(
            f"{place}: samples have shape {train.x.shape[1:]} in {train.x_name} and "
            f"{test.x.shape[1:]} in {test.x_name}; give both the same shape."
        )
    if (train.x.dtype == np.uint8) != (test.x.dtype == np.uint8):
        raise EbbflowError(
            f"{place}: {train.x_name} is {train.x.dtype} and {test.x_name} is {test.x.dtype}, and "
            "only uint8 is divided by 255; give both the same type."
        )


def _check_inputs(place: str, split: Split) -> None:
    x = split.x
    if x.dtype.kind not in "biuf":
        raise EbbflowError(
            f"{place}: {split.x_name} is of type {x.dtype}; save real numbers, as float32 or uint8."
        )
    if x.ndim < 2:
        raise EbbflowError(
            f"{place}: {split.x_name} has shape {x.shape}; give it one row a sample, [N, ...]."
        )


def _check_count(place: str, split: Split) -> None:
    """Raise an error unless there is something to predict for every sample."""
    found = len(split.y) if split.y.ndim else 0
    if len(split.x) != found or not found:
        raise EbbflowError(
            f"{place}: {split.x_name} has {len(split.x)} samples and {split.y_name} has {found}; "
            "give every sample what is to be predicted, and at least one sample."
        )


def _check_split(place: str, split: Split) -> None:
    _check_inputs(place, split)
    x, y = split.x, split.y
    if y.dtype.kind not in "iu":
        raise EbbflowError(
            f"{place}: the labels {split.y_name} are of type {y.dtype}; "
            "save class numbers as integers, with y.astype('int64')."
        )
    if y.ndim != 1:
        raise EbbflowError(
            f"{place}: the labels {split.y_name} have shape {y.shape}; give one number a sample, "
            "[N], with y.reshape(-1) or y.argmax(1)."
        )
    if len(x) != len(y):
        raise EbbflowError(
            f"{place}: {split.x_name} has {len(x)} samples and {split.y_name} has {len(y)}; "
            "give every sample one label."
        )
    if x.size == 0:
        raise EbbflowError(
            f"{place}: {split.x_name} is empty (shape {x.shape}); give at least one sample."
        )
    if y.min() < 0:
        raise EbbflowError(
            f"{place}: {split.y_name} holds the negative label {y.min()} (sample "
            f"{int(y.argmin())}); number the classes from 0."
        )


def _told_of_whole_numbers(train: Split, manner: Manner) -> tuple[str, ...]:
    """Return a sentence on whole numbers that might be meant as the numbers of words."""
    guessed = manner.inputs == "auto" and train.x.dtype.kind in "iu" and train.x.ndim == 2
    if not guessed or train.x.dtype.itemsize < 4:
        return ()
    return (
        f"the whole numbers of {train.x_name} are used as numbers; if they number the words of "
        'texts, set data.inputs = "tokens"',
    )


def _examples(place: str, split: Split, manner: Manner) -> Examples:
    y = torch.from_numpy(split.y.astype(np.int64))
    device = None if split.owners is None else torch.from_numpy(split.owners.astype(np.int64))
    if manner.pixels is not None:
        return Examples(torch.from_numpy(np.ascontiguousarray(split.x)), y, manner.pixels, device)
    x = _tokens(place, split) if manner.inputs == "tokens" else _numbers(place, split)
    return Examples(torch.from_numpy(x), y, device=device)


def _tokens(place: str, split: Split) -> Array:
    x = split.x
    if x.dtype.kind not in "iu" or x.ndim != 2:
        raise EbbflowError(
            f'{place}: {split.x_name} is {x.dtype} of shape {x.shape}, and data.inputs = "tokens" '
            "needs whole numbers [N, length]; save token numbers, or leave the setting out."
        )
    if x.min() < 0 or x.max() >= 2**31:
        raise EbbflowError(
            f"{place}: {split.x_name} holds token numbers from {x.min()} to {x.max()}; number the "
            "words from 1, and let 0 be padding."
        )
    return np.ascontiguousarray(x, dtype=np.int64)


def _numbers(place: str, split: Split) -> Array:
    if split.x.dtype == np.uint8:
        return split.x.astype(np.float32, order="C") * np.float32(1 / 255)
    # Values beyond float32 become infinite, and are reported as such.
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(split.x, dtype=np.float32)
    finite = np.isfinite(x).reshape(len(x), -1).all(axis=1)
    if not finite.all():
        raise EbbflowError(
            f"{place}: {split.x_name} holds a NaN or infinite value in float32 (sample "
            f"{int(finite.argmin())}); remove or replace such samples."
        )
    return x
