"""Columns of a table as inputs of a model: standardised numbers, and a column per category."""

from __future__ import annotations

import datetime
import decimal
import re
from collections import Counter
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed, printable, shortened
from ebbflow.data.own.choices import Inputs
from ebbflow.data.own.naming import Array, natural_order
from ebbflow.data.own.table_files import Table

MOST_CATEGORIES = 100
"""Categories of a column that have an input each; rarer ones share one."""
MISSING, OTHER = "missing", "other"
FARTHEST = 1e6
"""Standard deviations from the mean beyond which a number is a slip that nothing survives."""

_DATE = re.compile(
    r"\s*(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*"
)
_IGNORE = "or name it in data.ignore"
Kind = Literal["numbers", "categories"]


class Encoded(NamedTuple):
    """The inputs of the training and the test samples, what was done, and what they are."""

    train: Array
    test: Array
    notes: tuple[str, ...]
    inputs: Inputs = "numbers"


class _Column(NamedTuple):
    """What one column becomes: inputs ``[N, inputs]`` of both splits, and what was done."""

    train: NDArray[np.float32]
    test: NDArray[np.float32]
    notes: tuple[str, ...] = ()


def encode(train: Table, test: Table, columns: list[str]) -> Encoded:
    """Turn columns into inputs, by what the training set tells of them alone."""
    parts: list[_Column] = []
    numbers: list[str] = []
    constant: list[str] = []
    for name in columns:
        kind = _kind(train, name)
        if _varies(train, name):
            if _kind(test, name) != kind and not test.frame[name].isna().all():
                raise EbbflowError(
                    f"column {name} holds {kind} in {train.place} and not in {test.place}: write "
                    "the same kind of values in both"
                )
            if kind == "numbers":
                numbers.append(name)
            made = _numbers if kind == "numbers" else _categories
            parts.append(made(train, test, name))
        else:
            constant.append(name)
    if not parts:
        raise EbbflowError(
            f"{train.place} has no column left to learn from besides labels and owners"
            f"{f' (constant: {listed(constant)})' if constant else ''}: add columns of inputs"
        )
    notes = []
    if numbers:
        notes.append(
            "standardised by the training set's mean and standard deviation: " + listed(numbers)
        )
    if constant:
        notes.append(f"left out, because the training set has one value only: {listed(constant)}")
    notes += [note for part in parts for note in part.notes]
    return Encoded(
        np.concatenate([part.train for part in parts], axis=1),
        np.concatenate([part.test for part in parts], axis=1),
        tuple(notes),
    )


def text_column(table: Table, columns: list[str]) -> list[str]:
    """Return the texts of the only column that holds texts."""
    found = [name for name in columns if _texts(table.frame[name]) is not None]
    if len(found) != 1:
        which = f"{len(found)} ({listed(found)})" if found else "none"
        raise EbbflowError(
            f"{table.place} should have one column of texts besides labels and owners, and has "
            f"{which}: name the others in data.ignore"
        )
    texts = table.complete(found[0], "holds no text; add it, or leave the line out")
    return [str(value) for value in texts.tolist()]


# --- what a column holds


def _texts(series: Any) -> list[str] | None:
    """Return the values of a column that holds nothing but texts, without the missing ones."""
    if series.dtype.kind != "O":
        return None
    values = series.dropna().tolist()
    return values if values and all(isinstance(value, str) for value in values) else None


def _kind(table: Table, name: str) -> Kind:
    """Return whether a column holds numbers or categories, or say why it can be neither."""
    series = table.frame[name]
    if series.dtype.kind == "b" or str(series.dtype) == "category":
        return "categories"
    if series.dtype.kind in "iuf":
        return "numbers"
    texts = _texts(series)
    if texts is not None:
        _check_texts(table, name, texts)
        return "categories"
    values = series.dropna().tolist()
    if not values or all(isinstance(value, bool) for value in values):
        return "categories"
    dates = datetime.date | datetime.time | datetime.timedelta
    if series.dtype.kind in "mM" or isinstance(values[0], dates):
        raise _date_error(table, name, str(values[0]))
    if all(isinstance(v, int | float | decimal.Decimal) for v in values):
        return "numbers"
    odd = next((value for value in values if not isinstance(value, str)), values[0])
    raise EbbflowError(
        f"{table.place}: column {name} holds values of type {type(odd).__name__}; write numbers "
        f"or texts, {_IGNORE}"
    )


def _date_error(table: Table, name: str, value: str) -> EbbflowError:
    return EbbflowError(
        f"{table.place}: column {name} holds dates or times such as {value!r}, which are no "
        f"inputs: turn them into numbers, such as days since the first one, {_IGNORE}"
    )


def _check_texts(table: Table, name: str, texts: list[str]) -> None:
    numeric = sum(map(_is_number, texts))
    if 2 * numeric >= len(texts) > numeric:
        values = table.frame[name].tolist()
        row = next(r for r, v in enumerate(values) if isinstance(v, str) and not _is_number(v))
        raise EbbflowError(
            f"{table.at(row)}: column {name} holds {_shown(values[row])} where most values are "
            f"numbers; write a number, leave it empty if it is missing, {_IGNORE}"
        )
    if all(map(_DATE.fullmatch, texts)):
        raise _date_error(table, name, texts[0])
    if len(texts) > 2 and len(set(texts)) == len(texts) == len(table.frame):
        raise EbbflowError(
            f"{table.place}: column {name} holds a different text in every row, such as "
            f"{_shown(texts[0])}, as an identifier does, from which nothing can be learnt: name it "
            'in data.ignore, or set data.inputs = "words" if these are texts to learn from'
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(value: str) -> str:
    return repr(shortened(printable(value), 60))


def _varies(table: Table, name: str) -> bool:
    return int(table.frame[name].nunique(dropna=False)) > 1


# --- numbers


def _numbers(train: Table, test: Table, name: str) -> _Column:
    values = [_as_numbers(table, name) for table in (train, test)]
    missing = [np.isnan(each) for each in values]
    known = values[0][~missing[0]]
    with np.errstate(over="ignore", invalid="ignore"):  # numbers beyond all are refused next
        mean, deviation = float(known.mean()), float(known.std())
    if not np.isfinite(deviation) or not np.isfinite(mean):
        raise EbbflowError(
            f"{train.place}: the numbers of column {name} are too large to be standardised: divide "
            "them by a power of ten"
        )
    scale = deviation if deviation > 0 else 1.0
    # What is missing becomes the mean, which is zero from here on.
    filled = [np.nan_to_num((each - mean) / scale, nan=0.0) for each in values]
    for table, each in zip((train, test), filled, strict=True):
        far = np.abs(each) > FARTHEST
        if far.any():
            row = int(far.argmax())
            raise EbbflowError(
                f"{table.at(row)}: column {name} holds {values[table is test][row]:g}, which is "
                f"{each[row]:.3g} standard deviations from the mean; correct it, {_IGNORE}"
            )
    parts = [each.astype(np.float32)[:, None] for each in filled]
    notes = []
    if missing[0].any():
        count = int(missing[0].sum() + missing[1].sum())
        parts = [
            np.column_stack([p, m.astype(np.float32)]) for p, m in zip(parts, missing, strict=True)
        ]
        notes.append(
            f"column {name}: {count} missing values became the training set's mean, {mean:.6g}, "
            "and an input of its own says where"
        )
    elif missing[1].any():
        notes.append(
            f"column {name}: {int(missing[1].sum())} values that are missing in the test set only "
            f"became the training set's mean, {mean:.6g}"
        )
    if _counts_rows(values[0]):
        notes.append(
            f"column {name} seems to number the rows: name it in data.ignore if it says nothing "
            "about a sample"
        )
    return _Column(parts[0], parts[1], tuple(notes))


def _as_numbers(table: Table, name: str) -> NDArray[np.float64]:
    series = table.frame[name]
    if series.dtype.kind == "O":
        series = series.astype("float64")
    values: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise EbbflowError(
            f"{table.at(row)}: column {name} holds {values[row]}; write a finite number, or leave "
            "it empty if it is missing"
        )
    return values


def _counts_rows(values: NDArray[np.float64]) -> bool:
    """Whether values grow from row to row by whole numbers, as a counter of rows does."""
    steps = np.diff(values)
    return len(values) > 20 and bool((steps >= 1).all() and (steps == np.round(steps)).all())


# --- categories


def _categories(train: Table, test: Table, name: str) -> _Column:
    values = [
        [MISSING if gone else str(value) for value, gone in zip(s.tolist(), s.isna(), strict=True)]
        for s in (train.frame[name], test.frame[name])
    ]
    counts = Counter(values[0])
    order = sorted(counts, key=lambda value: (-counts[value], value))
    rare = order[MOST_CATEGORIES - 1 :] if len(order) > MOST_CATEGORIES else []
    kept = natural_order(order[: len(order) - len(rare)])
    place = {value: at for at, value in enumerate(kept)} | dict.fromkeys(rare, len(kept))
    width = len(kept) + bool(rare)
    unseen = len([value for value in values[1] if value not in place])
    if rare:
        place |= {value: len(kept) for value in values[1] if value not in place}
    parts = []
    for each in values:
        hot = np.zeros((len(each), width), dtype=np.float32)
        numbers = np.array([place.get(value, -1) for value in each], dtype=np.int64)
        known = np.flatnonzero(numbers >= 0)
        hot[known, numbers[known]] = 1
        parts.append(hot)
    shown = f"({listed(kept, 8)}{f', {OTHER}' if rare else ''})"
    notes = [f"column {name}: {width} inputs, one for each category {shown}"]
    if rare:
        notes.append(f"column {name}: its {len(rare)} rarest categories count as {OTHER}")
    gone = int(train.frame[name].isna().sum())
    if gone:
        gone += int(test.frame[name].isna().sum())
        notes.append(f"column {name}: {gone} missing values are a category of their own")
    if unseen:
        became = f"count as {OTHER}" if rare else "have zeros"
        notes.append(
            f"column {name}: {unseen} test samples with categories that no training sample has "
            f"{became}"
        )
    return _Column(parts[0], parts[1], tuple(notes))
