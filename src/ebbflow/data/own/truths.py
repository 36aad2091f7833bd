"""What is to be predicted where that is not one class for each sample: numbers, labels, tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.tasks import PADDING
from ebbflow.data.own.naming import Array
from ebbflow.data.own.table_files import Table

Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Means and standard deviations of numbers to predict, in the training set."""


class Truths(NamedTuple):
    """The truth of both splits, how many outputs it needs, and what was done to it."""

    train: Tensor
    test: Tensor
    outputs: int
    scale: Scale | None = None
    notes: tuple[str, ...] = ()


def truths_of(place: str, task: str, train: Array, test: Array, name: str) -> Truths:
    """Check the truth of a task and bring it to its form.

    Numbers to predict are standardised by the training set; results are told in their own units.
    """
    for split in (train, test):
        _check(place, task, split, name)
    if task == "tokens":
        most = 1 + max(int(split.max()) for split in (train, test))
        return Truths(*_tensors(train.astype(np.int64), test.astype(np.int64)), most)
    rows = [s.reshape(len(s), -1).astype(np.float64) for s in (train, test)]
    if rows[0].shape[1] != rows[1].shape[1]:
        raise EbbflowError(
            f"{place}: {name} has {rows[0].shape[1]} columns in the training set and "
            f"{rows[1].shape[1]} in the test set; give both as many"
        )
    outputs = rows[0].shape[1]
    if task == "multilabel":
        return Truths(*_tensors(*(r.astype(np.float32) for r in rows)), outputs)
    mean, deviation = rows[0].mean(0), rows[0].std(0)
    if not (deviation > 0).all():
        raise EbbflowError(
            f"{place}: {name} is {mean[deviation == 0][0]:g} in all training samples, so that "
            "there is nothing to learn: choose another data.label"
        )
    ready = _tensors(*(((r - mean) / deviation).astype(np.float32) for r in rows))
    note = (
        f"{name} of {place} is standardised by the training set (mean {mean[0]:.4g}, standard "
        f"deviation {deviation[0]:.4g}{', ...' if outputs > 1 else ''}); errors are told in its "
        "own units"
    )
    return Truths(*ready, outputs, (tuple(mean.tolist()), tuple(deviation.tolist())), (note,))


def _tensors(train: Array, test: Array) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(train), torch.from_numpy(test)


def _check(place: str, task: str, truth: Array, name: str) -> None:
    if task == "tokens":
        if truth.dtype.kind not in "iu" or truth.ndim != 2:
            raise EbbflowError(
                f'{place}: {name} is {truth.dtype} of shape {truth.shape}, and task = "tokens" '
                "needs whole numbers [N, length]"
            )
        if truth.size and truth[truth != PADDING].min(initial=0) < 0:
            raise EbbflowError(
                f"{place}: {name} holds the token {truth[truth != PADDING].min()}; number tokens "
                f"from 0, and write {PADDING} where nothing is to be predicted"
            )
        return
    if truth.dtype.kind not in "biuf":
        raise EbbflowError(
            f'{place}: {name} is of type {truth.dtype}, and task = "{task}" needs numbers'
        )
    finite = np.isfinite(truth.astype(np.float64)).reshape(len(truth), -1).all(1)
    if not finite.all():
        raise EbbflowError(
            f"{place}: sample {int(finite.argmin())} of {name} is not a finite number; correct it, "
            "or leave the sample out"
        )
    if task == "multilabel":
        wrong = ~np.isin(truth.reshape(len(truth), -1), (0, 1)).all(1)
        if truth.ndim != 2 or wrong.any():
            row = int(wrong.argmax())
            raise EbbflowError(
                f'{place}: {name} of sample {row} is {truth[row]}, and task = "multilabel" needs '
                "a zero or a one for each label, [N, labels]"
            )


def truth_columns(table: Table, label: str) -> list[str]:
    """Return the columns to predict: one, or several separated by commas."""
    if label in table.columns:
        return [label]
    return [name.strip() for name in label.split(",")]


def truth_values(table: Table, label: str) -> Array:
    """Return the numbers of the columns to predict, ``[N, O]``."""
    found = []
    for column in truth_columns(table, label):
        lacking = "holds no number; add it, or leave the line out"
        values: Array = table.complete(column, lacking).to_numpy()
        if values.dtype.kind not in "biuf":
            row = next((n for n, v in enumerate(values.tolist()) if not _is_number(v)), 0)
            raise EbbflowError(
                f"{table.at(row)}: column {column} holds {values[row]!r}, which is no number; "
                "correct it, or set task to classes"
            )
        found.append(values.astype(np.float64))
    return np.stack(found, axis=1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
