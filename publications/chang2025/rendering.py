"""A report of a table or figure, and the forms in which it is given: text, Markdown, CSV, HTML."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from ebbflow.report import markdown

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ report.title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: left; }
thead th { border-bottom: 2px solid #444; }
</style>
</head>
<body>
<h1>{{ report.title }}</h1>
{% for line in report.lines %}<p>{{ line | marked | safe }}</p>
{% endfor %}{% for grid in report.grids %}<h2>{{ grid.title }}</h2>
<table>
<thead><tr>{% for name in grid.head %}<th>{{ name | marked | safe }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in grid.rows %}<tr>{% for cell in row -%}
<td>{{ cell | marked | safe }}</td>
{%- endfor %}</tr>
{% endfor %}</tbody>
</table>
{% for note in grid.notes %}<p>{{ note | marked | safe }}</p>
{% endfor %}{% endfor %}</body>
</html>
"""


@dataclass(frozen=True)
class Grid:
    """A table: cells are text, in which ``**`` marks what is bold.

    Where there is little room, the first ``sections`` columns become headings above their rows.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    sections: int = 0


@dataclass(frozen=True)
class Report:
    """What there is to say about a table or figure.

    ``lines`` are sentences, ``grids`` tables for readers, ``rows`` the same for programs, and
    ``summary`` what follows from them.
    """

    id: str
    title: str
    lines: Sequence[str]
    grids: Sequence[Grid]
    rows: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any] = field(default_factory=dict)


def as_tables(report: Report, width: int = 80) -> list[Table]:
    """Return the grids for a terminal of so many columns."""
    return [table for grid in report.grids for table in _sections(grid, width)]


def _sections(grid: Grid, room: int) -> list[Table]:
    """Return a table for every section of a grid; their columns are equally wide."""
    parts: dict[tuple[str, ...], list[Sequence[str]]] = {}
    lead: tuple[str, ...] = ("",) * grid.sections
    for row in grid.rows:  # an empty cell stands for the one above
        lead = tuple(new or old for new, old in zip(row[: grid.sections], lead, strict=True))
        parts.setdefault(lead, []).append(row[grid.sections :])
    head = [_plain(name) for name in grid.head[grid.sections :]]
    widths = _widths(head, [row for rows in parts.values() for row in rows], room)
    tables = []
    for number, (lead, rows) in enumerate(parts.items()):
        table = Table(
            title="\n".join(_heading(grid, lead, first=not number)),
            title_justify="left",
            title_style="",
            show_header=not number,
            box=SIMPLE_HEAD,
            show_edge=False,
            padding=0,
        )
        for name, width in zip(head, widths, strict=True):
            table.add_column(name, width=width, overflow="fold")
        for row in rows:
            table.add_row(*map(_terminal, row))
        tables.append(table)
    if tables and grid.notes:
        tables[-1].caption = "\n".join(map(_plain, grid.notes))
        tables[-1].caption_justify = "left"
    return tables


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the columns' widths: of their longest cells, or less where there is not the room.

    The widest are cut down first, and words only when all else is.

    >>> _widths(["start", "rounds to it"], [["warm", "7"], ["previous", "12"]], 80)
    [8, 6]
    >>> _widths(["start", "b"], [["warm_start", "in a long sentence"]], 20)
    [10, 9]
    """
    words = [_longest(name.split()) for name in head]
    widths = list(words)
    for row in rows:
        widths = [max(old, cell_len(_plain(c))) for old, c in zip(widths, row, strict=True)]
        words = [max(old, _longest(_plain(c).split())) for old, c in zip(words, row, strict=True)]
    for least in (words, [1] * len(words)):
        while sum(widths) + len(widths) - 1 > room and widths != least:
            spare = [w if w > floor else 0 for w, floor in zip(widths, least, strict=True)]
            widths[spare.index(max(spare))] -= 1
    return widths


def _longest(words: Sequence[str]) -> int:
    return max(map(cell_len, words), default=1)


def _heading(grid: Grid, lead: Sequence[str], *, first: bool) -> list[str]:
    """Return the lines above a section: the grid's title once, and what its rows have in common."""
    lines = [f"\n[bold]{escape(grid.title)}[/]"] if first else []
    if lead:
        named = (
            f"{name} {cell}" if cell.isdigit() else cell
            for name, cell in zip(grid.head, lead, strict=False)
        )
        lines.append(f"[italic]{escape(_plain(', '.join(named)))}[/]")
    return lines


def as_markdown(report: Report, level: int = 1) -> str:
    """Return the report as a page, or as part of one with headings of a lower level."""
    parts = [f"{'#' * level} {report.title}\n", *(f"{line}\n" for line in report.lines)]
    for grid in report.grids:
        parts += [f"{'#' * (level + 1)} {grid.title}\n", markdown.table(grid.head, grid.rows)]
        parts += [f"{note}\n" for note in grid.notes]
    return "\n".join(parts)


def as_csv(report: Report) -> str:
    """Return the rows, with every column that one of them has."""
    names = list(dict.fromkeys(name for row in report.rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _value(value) for name, value in row.items()} for row in report.rows)
    return text.getvalue()


def as_json(report: Report) -> str:
    """Return rows and summary as strict JSON: infinity is a word, what is not known is null."""
    content = {
        "id": report.id,
        "title": report.title,
        "summary": strict(report.summary),
        "rows": [strict(row) for row in report.rows],
    }
    return json.dumps(content, indent=1, allow_nan=False)


def as_html(report: Report) -> str:
    """Return the report as one page without anything from elsewhere."""
    from jinja2 import Environment  # noqa: PLC0415 - only for those who ask for it

    def marked(text: str) -> str:
        safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text))
        return re.sub(r"`(.+?)`", r"<code>\1</code>", safe)

    environment = Environment(autoescape=True, keep_trailing_newline=True)
    environment.filters["marked"] = marked
    return environment.from_string(_PAGE).render(report=report)


def strict(value: Any) -> Any:
    """Return a value as JSON can hold it.

    >>> strict({"a": [math.inf, math.nan, 1.5]})
    {'a': ['inf', None, 1.5]}
    """
    if isinstance(value, Mapping):
        return {str(key): strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value


def _value(value: Any) -> Any:
    value = strict(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _plain(text: str) -> str:
    return text.replace("**", "").replace("`", "")


def _terminal(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"[bold]\1[/]", escape(text)).replace("`", "")
