"""CSV and Parquet: what is written is read back, and no text becomes a formula."""

from __future__ import annotations

import csv
import io
import math
import sys
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable
from ebbflow.report.export.columns import Column, Frame
from ebbflow.report.export.files import FORMULAS, csv_text, parquet_bytes
from ebbflow.report.export.frames import TABLES, table
from tests.report.run_views import comparison, wards

TEXTS = st.text(max_size=20) | st.sampled_from(
    ["=1+1", "+1", "-1", "@SUM(A1)", " =x", "'quoted", '"', "a,b", "\ud800", "\x00", "\uff1d1"]
)
NUMBERS = st.floats(allow_nan=False) | st.none()


def from_csv(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


def same(read: Any, written: Any) -> bool:
    if written is None:
        return read is None or read != read
    if isinstance(written, str):
        return bool(read == printable(written))
    return bool(read == written)


@pytest.mark.parametrize("name", TABLES)
def test_pandas_reads_the_same_values_from_csv(name: str) -> None:
    frame = table([comparison()], name)
    read = from_csv(csv_text(frame))
    assert tuple(read.columns) == frame.names
    assert len(read) == len(frame.rows)
    for column in frame.columns:
        for there, here in zip(read[column.name], frame.column(column.name), strict=True):
            # pandas takes device names that look like numbers for numbers.
            assert same(str(there) if column.kind == "text" and here else there, here)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("make", [comparison, wards])
def test_pandas_reads_the_same_values_and_types_from_parquet(name: str, make: Any) -> None:
    frame = table([make()], name)
    read = pd.read_parquet(io.BytesIO(parquet_bytes(frame)), dtype_backend="numpy_nullable")
    types = {"text": "string", "whole": "Int64", "number": "Float64", "switch": "boolean"}
    assert [str(kind) for kind in read.dtypes] == [types[c.kind] for c in frame.columns]
    for column in frame.columns:
        for there, here in zip(read[column.name], frame.column(column.name), strict=True):
            assert there is pd.NA if here is None else same(there, here)


def test_parquet_says_what_columns_mean_and_is_the_same_twice() -> None:
    from pyarrow import parquet  # noqa: PLC0415

    content = parquet_bytes(table([comparison()], "summary"))
    assert content == parquet_bytes(table([comparison()], "summary"))
    schema = parquet.read_schema(io.BytesIO(content))
    assert schema.metadata[b"ebbflow.table"] == b"summary"
    assert schema.field("window").metadata[b"about"].startswith(b"the first rounds")


@given(st.lists(st.tuples(TEXTS, NUMBERS, st.integers(-(2**60), 2**60)), min_size=1, max_size=8))
def test_hostile_texts_come_back_and_are_no_formulas(rows: list[tuple[str, Any, int]]) -> None:
    columns = (Column("name", "text", ""), Column("x", "number", ""), Column("n", "whole", ""))
    frame = Frame("any", columns, [{"name": a, "x": x, "n": n} for a, x, n in rows])
    head, *read = csv.reader(io.StringIO(csv_text(frame), newline=""))
    assert head == ["name", "x", "n"]
    for (name, x, n), (text, number, whole) in zip(rows, read, strict=True):
        assert not text.lstrip().startswith(FORMULAS)
        assert text.removeprefix("'") == printable(name)
        assert number == "" if x is None else float(number) == x
        assert int(whole) == n
    back = pd.read_parquet(io.BytesIO(parquet_bytes(frame)))
    assert list(back["name"]) == [printable(name) for name, _, _ in rows]
    assert [None if math.isnan(x) else x for x in back["x"]] == [x for _, x, _ in rows]


def test_numbers_stay_numbers() -> None:
    frame = Frame("any", (Column("x", "number", ""),), [{"x": -1.5}, {"x": -math.inf}])
    assert csv_text(frame) == "x\r\n-1.5\r\n-inf\r\n"


def test_without_pyarrow_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EbbflowError, match=r"pip install 'ebbflow\[table\]'`, or use --csv"):
        parquet_bytes(table([comparison()], "rounds"))
