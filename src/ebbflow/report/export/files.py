"""Tables as CSV and Parquet, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable
from ebbflow.report.export.columns import Frame

FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With what a formula may begin in a spreadsheet: the last four are wide forms of the first."""


def csv_text(frame: Frame) -> str:
    """Return a table as CSV (RFC 4180): numbers with all digits, what is not known left empty.

    A text that a spreadsheet would take for a formula gets an apostrophe before it, and so does one
    that begins with an apostrophe: to read texts back, take one from the front.
    """
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(map(guarded, frame.names))
    for row in frame.rows:
        writer.writerow(_cell(row[name]) for name in frame.names)
    return file.getvalue()


def guarded(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula.

    >>> guarded("=1+1"), guarded("ward 7"), guarded("'s")
    ("'=1+1", 'ward 7', "''s")
    """
    text = printable(text)
    return f"'{text}" if text.lstrip().startswith(FORMULAS) or text.startswith("'") else text


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return guarded(value) if isinstance(value, str) else value


def parquet_bytes(frame: Frame) -> bytes:
    """Return a table as Parquet; every column has its type, and says what it means."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - large, and not always there
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise EbbflowError(
            "Parquet needs pyarrow, which is missing here: `pip install 'ebbflow[table]'`, or use "
            "--csv"
        ) from None
    types = {
        "text": pa.string(),
        "whole": pa.int64(),
        "number": pa.float64(),
        "switch": pa.bool_(),
    }
    schema = pa.schema(
        [
            pa.field(column.name, types[column.kind], metadata={"about": column.about})
            for column in frame.columns
        ],
        metadata={"ebbflow.table": frame.name},
    )
    columns = [
        pa.array([_plain(value) for value in frame.column(column.name)], types[column.kind])
        for column in frame.columns
    ]
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_arrays(columns, schema=schema), sink)
    return bytes(sink.getvalue())


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    return printable(value) if isinstance(value, str) else value
