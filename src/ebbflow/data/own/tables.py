"""Tables of a user's own: CSV, TSV, Parquet and Feather files, and data frames of pandas."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ebbflow.core.errors import EbbflowError, nearest
from ebbflow.core.judging import LABELLED
from ebbflow.core.names import listed
from ebbflow.core.types import Dataset
from ebbflow.data.own.assembly import Manner, Split, assemble
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.columns import Encoded, encode, text_column
from ebbflow.data.own.naming import Array
from ebbflow.data.own.splitting import held_out
from ebbflow.data.own.table_files import Table, read_table
from ebbflow.data.own.targets import class_values
from ebbflow.data.own.truths import truth_columns, truth_values
from ebbflow.data.own.words import tokenise

_USED = {"label", "device", "test", "test_split", "ignore", "inputs", "vocabulary"}


def from_table(path: Path, choices: Choices) -> Dataset:
    """Load a table from a file; ``choices`` name the columns with labels and owners."""
    choices.refuse_unused(_USED, f"the table {path}")
    whole = read_table(path)
    test = None if choices.test is None else read_table(Path(choices.test).expanduser())
    return from_tables(path.stem, whole, test, choices)


def from_tables(name: str, whole: Table, test: Table | None, choices: Choices) -> Dataset:
    """Return the data set of a table, and of a second one with test samples if there is one."""
    if choices.label is None:
        raise EbbflowError(
            f"{whole.place} needs data.label (--label), the column with the labels: it has "
            f"{listed(whole.columns)}"
        )
    label = choices.label
    for table in (whole,) if test is None else (whole, test):
        _check_columns(table, choices, label)
    if test is not None and choices.test_split is not None:
        raise EbbflowError(
            f"data.test_split = {choices.test_split:g} has no use where {test.place} holds the "
            "test samples: leave one of the two out"
        )
    notes: list[str] = []
    kept = ["train", "train"]
    if test is None:
        owners = _owners(whole, choices.device)
        values = _truth(whole, label, choices)
        if choices.task not in LABELLED:
            values = np.zeros(len(values), dtype=np.int64)
        held = held_out(whole.place, choices.test_share(whole.place), values, owners)
        whole, test = whole.rows(~held.test), whole.rows(held.test)
        notes += held.notes
    else:
        kept = [whole.place, test.place]
    aside = {*truth_columns(whole, label), choices.device, *choices.ignore}
    inputs = [column for column in whole.columns if column not in aside]
    notes += _told_of_differences(whole, test, choices)
    encoded = _encoded(whole, test, inputs, choices)
    train_split, test_split = (
        Split(
            x,
            _truth(table, label, choices),
            f"the columns of {kept[at]}",
            f"column {label}",
            _owners(table, choices.device),
            f"column {choices.device}",
        )
        for at, (table, x) in enumerate(((whole, encoded.train), (test, encoded.test)))
    )
    manner = Manner(encoded.inputs, task=choices.task, notes=(*notes, *encoded.notes))
    if choices.task not in LABELLED:
        return assemble(name, whole.place, train_split, test_split, manner)
    train_split, test_split = _alike(train_split, test_split)
    if len(np.unique(train_split.y)) < 2:
        raise EbbflowError(
            f"{whole.place}: column {label} holds the same label, {train_split.y[0]}, in all "
            "training samples, so that there is nothing to learn: choose another data.label"
        )
    return assemble(name, whole.place, train_split, test_split, manner)


def _truth(table: Table, label: str, choices: Choices) -> Array:
    """Return what is to be predicted."""
    if choices.task in LABELLED:
        return class_values(table, label)
    return truth_values(table, label)


def _alike(train: Split, test: Split) -> tuple[Split, Split]:
    """Make labels and owners texts in both tables if they are texts in one of them."""
    if {train.y.dtype.kind, test.y.dtype.kind} & {"U"}:
        train, test = train._replace(y=train.y.astype(str)), test._replace(y=test.y.astype(str))
    elif not _plain_classes(train.y, test.y):
        # Whole numbers with gaps, or not from 0, are names like any other.
        order = np.unique(np.concatenate([train.y, test.y]))
        names = np.array([str(number) for number in order.tolist()])
        train, test = (s._replace(y=names[np.searchsorted(order, s.y)]) for s in (train, test))
    if train.owners is not None and test.owners is not None:
        owners = [train.owners, test.owners]
        if any(each.dtype.kind == "U" for each in owners):
            owners = [each.astype(str) for each in owners]
        train, test = train._replace(owners=owners[0]), test._replace(owners=owners[1])
    return train, test


def _plain_classes(*labels: Array) -> bool:
    found = np.unique(np.concatenate(labels))
    return bool((found == np.arange(len(found))).all())


def _encoded(train: Table, test: Table, inputs: list[str], choices: Choices) -> Encoded:
    if choices.inputs not in ("tokens", "words", "characters"):
        return encode(train, test, inputs)
    texts = [text_column(table, inputs) for table in (train, test)]
    tokens = tokenise(texts[0], texts[1], choices.inputs, choices.vocabulary)
    return Encoded(tokens.train, tokens.test, tokens.notes, "tokens")


def _check_columns(table: Table, choices: Choices, label: str) -> None:
    """Raise an error if a column that a setting names is not there."""
    labels = [label] if choices.task in LABELLED else truth_columns(table, label)
    named = [*(("label", each) for each in labels), ("device", choices.device)]
    for key, column in named + [("ignore", column) for column in choices.ignore]:
        if column is not None and column not in table.columns:
            close = nearest(column, table.columns)
            hint = f"did you mean {close}? " if close else ""
            raise EbbflowError(
                f"data.{key} = {column!r} is no column of {table.place}: {hint}it has "
                f"{listed(table.columns)}"
            )
    for key, column in named:
        if column is not None and column in choices.ignore:
            raise EbbflowError(
                f"data.ignore leaves out the column {column!r}, which is data.{key}: take it out "
                "of data.ignore"
            )
    if label == choices.device:
        raise EbbflowError(
            f"data.label and data.device are both {label!r}: name two different columns"
        )
    if not len(table.frame):
        raise EbbflowError(f"{table.place} has columns and no rows: give at least one sample")


def _told_of_differences(train: Table, test: Table, choices: Choices) -> list[str]:
    lacking = [name for name in train.columns if name not in {*test.columns, *choices.ignore}]
    if lacking:
        raise EbbflowError(
            f"{test.place} lacks the column{'s' if len(lacking) > 1 else ''} {listed(lacking)} of "
            f"{train.place}: add them, or name them in data.ignore"
        )
    more = [name for name in test.columns if name not in {*train.columns, *choices.ignore}]
    return (
        [f"{listed(more)} of {test.place} are not used: {train.place} lacks them"] if more else []
    )


def _owners(table: Table, column: str | None) -> Array | None:
    """Return whose each sample is: whole numbers, or texts."""
    if column is None:
        return None
    lacking = "does not say whose the sample is; name its device, or leave the line out"
    values: Array = table.complete(column, lacking).to_numpy()
    if (
        values.dtype.kind == "f"
        and np.isfinite(values).all()
        and (values == np.round(values)).all()
    ):
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        values = np.array([str(value) for value in values.tolist()])
    return values
