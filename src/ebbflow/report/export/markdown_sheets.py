"""Tables in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ebbflow.core.names import printable
from ebbflow.report.export.sheets import Sheet, SheetCell

_SPECIAL = re.compile(
    r"[\\`*\[\]<>&|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=\S)|(?<=www)\.", re.IGNORECASE
)
"""Whatever may begin markup or a link: an underscore only at the edge of a word."""


def markdown(sheets: Sequence[Sheet]) -> str:
    """Return tables with a title above and a note below."""
    return "\n".join(map(_table, sheets))


def markdown_text(text: str) -> str:
    r"""Return a text that Markdown shows as it is, within a cell.

    >>> print(markdown_text("a|b *c* warm_start"))
    a\|b \*c\* warm_start
    """
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", printable(text))


def _table(sheet: Sheet) -> str:
    head = [SheetCell(cell.title) for cell in sheet.head]
    lines = [
        f"**{markdown_text(sheet.title).strip()}**",
        "",
        _row(head),
        "|" + "|".join(" :--- " if words else " ---: " for words in sheet.words) + "|",
        *(_row(row) for group in sheet.groups for row in group),
        "",
        f"*{markdown_text(sheet.note).strip()}*",
        "",
    ]
    return "\n".join(lines)


def _row(cells: Sequence[SheetCell]) -> str:
    texts = (markdown_text(cell.text) for cell in cells)
    bold = (f"**{t}**" if c.best else t for c, t in zip(cells, texts, strict=True))
    return f"| {' | '.join(bold)} |"
