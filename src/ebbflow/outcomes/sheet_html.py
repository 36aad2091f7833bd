"""Printed tables as HTML for notebooks: no scripts, no colours of their own, everything escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ebbflow.core.names import printable
from ebbflow.outcomes.sheet_text import first_rows
from ebbflow.report.export.sheets import Sheet

# Text has the colour of the page, light or dark, and so do the rules, of which half shines through.
_RULE = "1px solid rgba(128, 128, 128, 0.5)"
_TABLE = "border-collapse: collapse; margin: 0.5em 0; font-size: inherit"
_CAPTION = "caption-side: top; text-align: left; font-weight: bold; color: inherit; "
_CAPTION += "white-space: nowrap; padding: 0"
_NOTE = "font-size: smaller; opacity: 0.75; margin: 0 0 0.5em"


def as_html(title: str, sentences: Sequence[str], sheets: Sequence[Sheet]) -> str:
    """Return a title, sentences and tables one below the other."""
    parts = [f'<p style="margin: 0.25em 0"><code>{escaped(title)}</code></p>'] if title else []
    parts += [f'<p style="margin: 0.25em 0">{escaped(sentence)}</p>' for sentence in sentences]
    return f"<div>\n{chr(10).join([*parts, *map(html_table, sheets)])}\n</div>"


def escaped(text: str) -> str:
    """Return a text that is only a text in HTML.

    >>> escaped("<b>a & b</b>")
    '&lt;b&gt;a &amp; b&lt;/b&gt;'
    """
    return html.escape(printable(text))


def html_table(sheet: Sheet) -> str:
    """Return a table with its title above and its note below; the best is in bold."""
    rows, left_out = first_rows(sheet)
    sides = ["left" if words else "right" for words in sheet.words]
    head = "".join(
        _cell("th", escaped(cell.title), side) for cell, side in zip(sheet.head, sides, strict=True)
    )
    body = [
        "".join(
            _cell("td", f"<b>{escaped(cell.text)}</b>" if cell.best else escaped(cell.text), side)
            for cell, side in zip(row, sides, strict=True)
        )
        for row in rows
    ]
    note = f"{left_out} more rows are not shown; {sheet.note}" if left_out else sheet.note
    return "\n".join(
        [
            f'<table style="{_TABLE}">',
            f'<caption style="{_CAPTION}">{escaped(sheet.title)}</caption>',
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *(f"<tr>{cells}</tr>" for cells in body),
            "</tbody></table>",
            f'<p style="{_NOTE}">{escaped(note)}</p>',
        ]
    )


def _cell(tag: str, content: str, side: str) -> str:
    rule = _RULE if tag == "th" else "none"
    style = f"text-align: {side}; border-bottom: {rule}; padding: 0.2em 0.8em; background: none"
    return f'<{tag} style="{style}">{content}</{tag}>'
