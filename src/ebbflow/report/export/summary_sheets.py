"""Window scores as papers print them: methods by transitions, or runs by methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.export.columns import ExportRow, Frame
from ebbflow.report.export.sheets import (
    NOT_KNOWN,
    HeadCell,
    Sheet,
    SheetCell,
    SheetRows,
    called,
    decimals,
    grouped,
    over_seeds,
    plain,
    slug,
    spread,
    telling,
    words_first,
)
from ebbflow.report.tables import WIDE

ALL = "all: mean over transitions"


class Arranged(NamedTuple):
    """Scores in the cells of a table whose first few columns hold words."""

    head: list[HeadCell]
    words: int
    groups: list[SheetRows]
    note: str


def summary_sheets(views: Sequence[RunView], frame: Frame) -> Iterator[Sheet]:
    """Yield a table for each algorithm and window."""
    kinds = grouped(frame.rows, "algorithm", "window", "measure")
    for (algorithm, window, measure), rows in kinds.items():
        judge = next(view.judge for view in views if view.judge.name == measure)
        digits = decimals((row["mean"] for row in rows), percent=judge.percent)
        if len(views) > 1:
            table = _runs_by_methods(rows, digits, telling(frame))
        elif len({row["transition"] for row in rows}) - 1 > WIDE:
            table = _transitions_by_methods(rows, digits)
        else:
            table = _methods_by_transitions(rows, digits)
        notes = [over_seeds(row["seeds"] for row in rows), table.note]
        if len({row["method"] for row in rows}) > 1:
            notes.append("best in bold")
        if any(row["mean"] is None for row in rows):
            notes.append(f"{NOT_KNOWN}: not finished")
        longest = max(r.round for view in views for r in view.rounds)
        if longest < window:
            notes.append(f"a session has {longest} rounds")
        over = f"over the first {window} round{'s' if window > 1 else ''} after a transition"
        yield Sheet(
            f"{judge.title} {over} ({algorithm}, {called(views)})",
            "; ".join(notes),
            slug("tab", called(views), algorithm, measure, window),
            table.head,
            words_first(table.head, table.words),
            table.groups,
        )


def _score(digits: int | None, rows: Sequence[ExportRow], *, alone: bool) -> SheetCell:
    """Return the one score of these rows, in bold if it is the best of several methods."""
    if not rows or rows[0]["mean"] is None:
        return SheetCell(NOT_KNOWN)
    return SheetCell(spread(rows[0], digits), rows[0]["best"] and not alone)


def _methods_by_transitions(rows: Sequence[ExportRow], digits: int | None) -> Arranged:
    places = grouped(rows, "transition", "session")
    methods = grouped(rows, "method")
    alone = len(methods) == 1
    body = [
        [SheetCell(method), *(_score(digits, [row], alone=alone) for row in own)]
        for (method,), own in methods.items()
    ]
    numbered = [(k, session) for k, session in places if k is not None]
    names = [HeadCell(str(k), "transition") for k, _ in numbered]
    first = f"transition {numbered[0][0]} is the start of session {numbered[0][1]}"
    head = [HeadCell("method"), *names, HeadCell("all")]
    return Arranged(head, 1, [body], f"{first}; {ALL}")


def _transitions_by_methods(rows: Sequence[ExportRow], digits: int | None) -> Arranged:
    """Arrange more transitions than fit side by side."""
    methods = [method for (method,) in grouped(rows, "method")]
    body: SheetRows = []
    for (k, session), own in grouped(rows, "transition", "session").items():
        place = ["all", ""] if k is None else [str(k), str(session)]
        cells = (_score(digits, [row], alone=len(methods) == 1) for row in own)
        body.append([*map(SheetCell, place), *cells])
    head = [HeadCell(name) for name in ("transition", "session", *methods)]
    return Arranged(head, 2, [body[:-1], body[-1:]], ALL)


def _runs_by_methods(
    rows: Sequence[ExportRow], digits: int | None, told: Sequence[str]
) -> Arranged:
    methods = [method for (method,) in grouped(rows, "method")]
    body = []
    for about, own in grouped(rows, *told).items():
        overall = grouped([row for row in own if row["transition"] is None], "method")
        alone = len(overall) == 1
        cells = (_score(digits, overall.get((m,), []), alone=alone) for m in methods)
        body.append([*plain(about), *cells])
    return Arranged(
        [HeadCell(name) for name in (*told, *methods)],
        len(told),
        [body],
        "mean over all transitions",
    )
