"""The pieces that sections of the page are made of: tables, lists, folded parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from chang2025.rendering import Grid
from ebbflow.report.markdown import table

WIDTH = 100


def wrapped(part: str) -> str:
    """Return a paragraph in lines of the usual length; tables and lists as they are."""
    if part.startswith(("|", "#", "-", "<", "!", "```")):
        return part
    paragraphs = (
        fill(each, WIDTH, break_long_words=False, break_on_hyphens=False)
        for each in part.strip().split("\n\n")
    )
    return "\n\n".join(paragraphs) + "\n"


def plain(grid: Grid) -> Iterator[str]:
    """Yield a table and its notes."""
    yield table(grid.head, grid.rows)
    for note in grid.notes:
        yield f"{note}\n"


def folded(title: str, grid: Grid) -> Iterator[str]:
    """Yield a long table that a reader may open."""
    yield f"<details><summary>{title}</summary>\n"
    yield from plain(grid)
    yield "</details>\n"


def titled(grid: Grid) -> Iterator[str]:
    """Yield a table below its title."""
    yield f"**{grid.title}**\n"
    yield from plain(grid)


def bullets(items: Sequence[str]) -> str:
    """Return a list."""
    return "".join(
        fill(f"- {item}", WIDTH, subsequent_indent="  ", break_on_hyphens=False) + "\n"
        for item in items
    )


def joined(items: Sequence[object]) -> str:
    """Return words as a sentence has them.

    >>> joined(["a", "b", "c"]), joined([1])
    ('a, b and c', '1')
    """
    *others, last = map(str, items)
    return f"{', '.join(others)} and {last}" if others else last
