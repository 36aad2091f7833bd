"""The column of a table that is to be predicted."""

from __future__ import annotations

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.data.own.naming import Array
from ebbflow.data.own.table_files import Table

MOST_FRACTIONS = 20
"""More different numbers with a fraction than this are measurements and no classes."""


def class_values(table: Table, column: str) -> Array:
    """Return the labels of a table's rows: whole numbers, or texts.

    A column of another kind of target, such as a number to predict, would be read here.
    """
    lacking = "holds no label; add it, or leave the line out"
    values: Array = table.complete(column, lacking).to_numpy()
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind in "Mm":
        raise EbbflowError(
            f"{table.place}: column {column} holds dates, which are no classes: choose another "
            "data.label"
        )
    if values.dtype.kind == "f":
        return _from_fractions(table, column, values)
    return np.array([str(value) for value in values.tolist()])


def _from_fractions(table: Table, column: str, values: Array) -> Array:
    finite = np.isfinite(values)
    if not finite.all():
        row = int(finite.argmin())
        raise EbbflowError(
            f"{table.at(row)}: column {column} holds {values[row]}, which is no label; correct it, "
            "or leave the line out"
        )
    whole = values == np.round(values)
    if whole.all() and np.abs(values).max() < 2**53:
        return values.astype(np.int64)
    different = np.unique(values)
    if len(different) > MOST_FRACTIONS:
        row = int((~whole).argmax())
        raise EbbflowError(
            f"{table.place}: column {column} holds {len(different)} different numbers such as "
            f"{values[row]:g}, which are measurements and no classes: choose another data.label, "
            "or group them into classes"
        )
    return np.array([f"{value:g}" for value in values.tolist()])
