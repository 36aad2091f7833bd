"""Tables as LaTeX and Markdown print them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ebbflow.analysis.views.run_view import RunView
from ebbflow.core.errors import EbbflowError
from ebbflow.report.export.columns import Frame
from ebbflow.report.export.cost_sheets import cost_sheets
from ebbflow.report.export.frames import TABLES, named_apart, table
from ebbflow.report.export.metric_sheets import metric_sheets
from ebbflow.report.export.sheets import HeadCell, Sheet, called, plain, slug
from ebbflow.report.export.summary_sheets import summary_sheets

Arrangement = Callable[[Sequence[RunView], Frame], Iterable[Sheet]]

ARRANGED: dict[str, Arrangement] = {
    "summary": summary_sheets,
    "metrics": metric_sheets,
    "costs": cost_sheets,
}
"""Tables that are printed as means; of any other, every row is printed."""


def sheets(views: Sequence[RunView], name: str) -> list[Sheet]:
    """Return a table of one or several runs as papers print it."""
    frame = table(views, name)
    if not frame.rows:
        first = min(view.config.pilot.sessions for view in views) + 3
        raise EbbflowError(
            f"--table {name}: nothing is known of {called(views)} yet, for the first session with "
            f"a choice of models is session {first}: let it run on, or choose --table rounds"
        )
    return list(ARRANGED.get(name, _everything)(named_apart(views), frame))


def _everything(views: Sequence[RunView], frame: Frame) -> Iterator[Sheet]:
    # Columns without a value, such as scores that were not recorded, take room for nothing.
    columns = [
        column
        for column in frame.columns
        if any(row[column.name] is not None for row in frame.rows)
    ]
    yield Sheet(
        f"{frame.name} ({called(views)})",
        f"{TABLES[frame.name].about}; numbers with four digits",
        slug("tab", called(views), frame.name),
        [HeadCell(column.name) for column in columns],
        [column.kind == "text" for column in columns],
        [[plain(row[column.name] for column in columns) for row in frame.rows]],
    )
