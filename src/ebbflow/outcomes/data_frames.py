"""Tables as pandas data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebbflow.core.errors import EbbflowError
from ebbflow.report.export.columns import Column, Frame

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def data_frame(frame: Frame) -> DataFrame:
    """Return a table as a data frame; a column's type depends on what it holds, not on the run.

    Whole numbers and truths of which some are missing have pandas' types for that.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - large, and not always there
    except ImportError:
        raise EbbflowError(
            "data frames need pandas, which is missing here: `pip install 'ebbflow[table]'`"
        ) from None

    def series(column: Column) -> Series[Any]:
        cells = frame.column(column.name)
        whole = None not in cells
        kinds = {
            "text": None,  # pandas' own for texts, which depends on its version
            "whole": "int64" if whole else "Int64",
            "number": "float64",
            "switch": "bool" if whole else "boolean",
        }
        return pd.Series(cells, dtype=kinds[column.kind])

    return pd.DataFrame({column.name: series(column) for column in frame.columns})
