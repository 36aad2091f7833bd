"""Printed tables in plain text, for terminals and for the answers of an interpreter."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ebbflow.core.names import printable
from ebbflow.report.export.sheets import Sheet, SheetCell

WIDTH = 96
MOST_ROWS = 40
"""Rows of one table; of more, the last ones are left out, and the table says so."""


def as_text(sentences: Sequence[str], sheets: Sequence[Sheet]) -> str:
    """Return sentences and tables one below the other."""
    parts = [textwrap.fill(printable(sentence), WIDTH) for sentence in sentences]
    return "\n\n".join([*parts, *map(text_table, sheets)])


def text_table(sheet: Sheet) -> str:
    """Return a table in columns; what would be bold is marked by a star."""
    rows, left_out = first_rows(sheet)
    body = [
        [printable(cell.title) for cell in sheet.head],
        *([_marked(c) for c in r] for r in rows),
    ]
    # A star hangs over, so that the digits of a column stand below each other.
    starred = [any(row[place].best for row in rows) for place in range(len(sheet.head))]
    widths = [max(len(row[place]) for row in body) for place in range(len(sheet.head))]
    lines = [
        "  ".join(
            (f"{cell:<{width}}" if words else f"{_hung(cell, star):>{width}}")
            for cell, words, width, star in zip(row, sheet.words, widths, starred, strict=True)
        ).rstrip()
        for row in body
    ]
    note = sheet.note.replace("in bold", "marked by *")
    if left_out:
        note = f"{left_out} more rows are not shown; {note}"
    parts = [textwrap.fill(printable(text), WIDTH) for text in (sheet.title, note)]
    return "\n".join([parts[0], *lines, parts[1]])


def first_rows(sheet: Sheet) -> tuple[list[list[SheetCell]], int]:
    """Return as many rows as anybody reads, and how many are left out."""
    rows = [row for group in sheet.groups for row in group]
    return rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS)


def _marked(cell: SheetCell) -> str:
    return f"{printable(cell.text)}*" if cell.best else printable(cell.text)


def _hung(text: str, star: bool) -> str:
    return text if not star or text.endswith("*") else f"{text} "
