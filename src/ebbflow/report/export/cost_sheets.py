"""Costs as papers print them: what a session costs each method, and on what it was spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.export.columns import ExportRow, Frame
from ebbflow.report.export.sheets import (
    HeadCell,
    Sheet,
    SheetCell,
    SheetRows,
    called,
    grouped,
    plain,
    shown,
    slug,
    telling,
    words_first,
)

MEGA = 1e6
QUANTITIES = {
    "seconds": ("seconds", 1.0),
    "joules": ("joules", 1.0),
    "bytes_down": ("MB down", MEGA),
    "bytes_up": ("MB up", MEGA),
}
"""Columns of a table of costs: what they are called in print, and their units."""


def cost_sheets(views: Sequence[RunView], frame: Frame) -> Iterator[Sheet]:
    """Yield a table for each algorithm: means over sessions and seeds."""
    told = telling(frame)
    chosen = [row for row in frame.rows if row["transition"] is not None]
    over = "the sessions with a choice of starts" if chosen else "all sessions"
    for (algorithm,), rows in grouped(chosen or frame.rows, "algorithm").items():
        names = [*told, "method", "part", *(title for title, _ in QUANTITIES.values())]
        head = [HeadCell(name) for name in names]
        seeds = len({row["seed"] for row in rows})
        yield Sheet(
            f"what a session costs ({algorithm}, {called(views)})",
            f"mean over {over} and {seeds} seed{'s' if seeds > 1 else ''}; of all devices "
            "together; lowest in bold",
            slug("tab", called(views), algorithm, "costs"),
            head,
            words_first(head, len(told) + 2),
            [_rows_of(own, told) for own in grouped(rows, *told).values()],
        )


def _rows_of(rows: Sequence[ExportRow], told: Sequence[str]) -> SheetRows:
    """Return a run's costs: a row for each part of each method, and one for all parts."""
    totals = {method: _means(own, own) for (method,), own in grouped(rows, "method").items()}
    least = [min(values) for values in zip(*totals.values(), strict=True)]
    body: SheetRows = []
    for (*about, method), own in grouped(rows, *told, "method").items():
        parts = grouped(own, "part")
        for (part,), each in parts.items() if len(parts) > 1 else ():
            body.append(plain([*about, method, part, *_means(each, own)]))
        cells = [
            SheetCell(shown(value), len(totals) > 1 and value == lowest)
            for value, lowest in zip(totals[method], least, strict=True)
        ]
        body.append([*plain([*about, method, "all"]), *cells])
    return body


def _means(rows: Sequence[ExportRow], session_rows: Sequence[ExportRow]) -> list[float]:
    """Return what rows cost, as a mean over the sessions and seeds of ``session_rows``."""
    count = len(grouped(session_rows, "seed", "session"))
    return [
        math.fsum(row[name] for row in rows) / unit / count
        for name, (_, unit) in QUANTITIES.items()
    ]
