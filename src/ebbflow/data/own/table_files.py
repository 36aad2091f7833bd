"""Files with tables: CSV, TSV, Parquet and Feather."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable, shortened

ENDINGS = (".csv", ".tsv", ".parquet", ".feather")


class Table(NamedTuple):
    """A data frame, what errors call it, and the lines that its rows have in the file."""

    frame: Any
    place: str
    lines: NDArray[np.int64] | None = None

    def at(self, row: int) -> str:
        """Return where a row is: the line of a text file, or else the row counted from 0."""
        return (
            f"{self.place}, row {row}"
            if self.lines is None
            else f"{self.place}, line {self.lines[row]}"
        )

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.frame.columns]

    def complete(self, column: str, lacking: str) -> Any:
        """Return a column none of whose values is missing.

        Otherwise an error names the first line, and ``lacking`` ends its sentence.
        """
        series = self.frame[column]
        missing = series.isna().to_numpy(dtype=bool)
        if missing.any():
            raise EbbflowError(f"{self.at(int(missing.argmax()))}: column {column} {lacking}")
        return series

    def rows(self, chosen: NDArray[np.bool_]) -> Table:
        """Return some of the rows."""
        frame = self.frame[chosen].reset_index(drop=True)
        return Table(frame, self.place, None if self.lines is None else self.lines[chosen])


def read_table(path: Path) -> Table:
    """Read a file; errors name its line where a file has lines."""
    if not path.is_file():
        what = "is no file" if path.exists() else "does not exist"
        raise EbbflowError(f"The data file {path} {what}; give the path of a table.")
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        return _read_text(path, "\t" if ending == ".tsv" else ",")
    if ending not in ENDINGS:
        raise EbbflowError(f"{path} is no table that ebbflow reads: save it as CSV or Parquet")
    return _read_arrow(path, ending)


def missing_package(package: str, path: Path, extra: str) -> EbbflowError:
    """Return the error for a file that needs a package which not everybody has."""
    return EbbflowError(
        f"{path} cannot be read without the package {package}, which is missing: "
        f'`pip install "ebbflow[{extra}]"`'
    )


def _read_arrow(path: Path, ending: str) -> Table:
    try:
        # An extra, as pandas is, to which its tables are turned.
        import pandas  # noqa: F401, PLC0415
        from pyarrow import feather, parquet  # noqa: PLC0415
    except ImportError as error:
        raise missing_package(str(error.name or "pyarrow"), path, "table") from None
    try:
        content = (parquet if ending == ".parquet" else feather).read_table(path)
        # pyarrow believes what a damaged file says of itself, and would read beyond its end.
        content.validate(full=True)
        names = list(content.column_names)
        _check_header(path, names)
        return Table(content.to_pandas(), str(path))
    except EbbflowError:
        raise
    except Exception as error:  # pyarrow raises whatever its parser happens to stumble over
        raise EbbflowError(
            f"{path} is not a readable {ending.removeprefix('.')} file "
            f"({_reason(error)}): write it again"
        ) from None


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return shortened(printable(lines[0]), 200) if lines else type(error).__name__


def _read_text(path: Path, separator: str) -> Table:
    """Read a text file, after a look at every line: pandas fills short lines up in silence."""
    try:
        import pandas as pd  # noqa: PLC0415 - an extra, and it takes long to import
    except ImportError:
        raise missing_package("pandas", path, "table") from None
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise EbbflowError(
            f"{path}, line {line}: a byte is not UTF-8 ({error.object[error.start]:#04x}); save "
            "the file as UTF-8"
        ) from None
    except OSError as error:
        raise EbbflowError(f"{path} cannot be read ({error.strerror}): check the file") from None
    names, lines = _scanned(path, text, separator)
    try:
        frame = pd.read_csv(io.StringIO(text), sep=separator, index_col=False, low_memory=False)
    except (ValueError, OverflowError) as error:  # pandas's own errors are ValueErrors
        raise EbbflowError(
            f"{path} is not a readable table ({_reason(error)}): write it again"
        ) from None
    if len(frame) != len(lines):
        raise EbbflowError(
            f"{path} has {len(lines)} lines and pandas reads {len(frame)}: write it again, with "
            "every text that holds a quotation mark in quotation marks"
        )
    frame.columns = names
    return Table(frame, str(path), lines)


def _scanned(path: Path, text: str, separator: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the columns and the line of every row, if all rows have one length."""
    if "\0" in text:
        line = 1 + text[: text.index("\0")].count("\n")
        raise EbbflowError(f"{path}, line {line}: a byte is zero; save the file as plain text")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names: list[str] = []
    lines = []
    try:
        for row in rows:
            if not row or (len(row) == 1 and not row[0].strip() and len(names) != 1):
                continue  # pandas leaves out empty lines, too
            if not names:
                names = row
                _check_header(path, names, separator)
            elif len(row) != len(names):
                raise EbbflowError(
                    f"{path}, line {rows.line_num}: {len(row)} values where the header has "
                    f"{len(names)} columns; write one value for every column"
                )
            else:
                lines.append(rows.line_num)
    except csv.Error as error:
        raise EbbflowError(f"{path}, line {rows.line_num}: {error}; write it again") from None
    if not names:
        raise EbbflowError(f"{path} is empty: let the first line name the columns")
    if not lines:
        raise EbbflowError(f"{path} has columns and no rows: give at least one sample")
    return names, np.array(lines, dtype=np.int64)


def _check_header(path: Path, names: Sequence[str], separator: str = ",") -> None:
    seen: set[str] = set()
    for place, name in enumerate(names, start=1):
        if not str(name).strip():
            raise EbbflowError(f"{path}: column {place} has no name; name every column")
        if name in seen:
            raise EbbflowError(
                f"{path} has two columns called {name!r}: give every column a name of its own"
            )
        seen.add(name)
    other = {",": ";", "\t": ","}[separator]
    if len(names) == 1 and (other in names[0] or "\t" in names[0]):
        raise EbbflowError(
            f"{path} has a single column, {shortened(printable(names[0]), 100)!r}: separate "
            f"columns by {'commas' if separator == ',' else 'tabs'}"
        )
