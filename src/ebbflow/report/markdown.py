"""Markdown tables, and the marked places of a page that a command fills in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ebbflow.core.errors import EbbflowError


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    >>> print(table(["a", "b"], [["1", "2"]]), end="")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def filled(page: str, name: str, text: str) -> str:
    r"""Return a page with new text between its comments NAME and /NAME.

    >>> filled("<!-- sum -->\n\n3\n\n<!-- /sum -->", "sum", "4\n").splitlines()[2]
    '4'
    """
    place = re.search(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", page, flags=re.DOTALL)
    if place is None:
        raise EbbflowError(f"the page has no place for {name}: add <!-- {name} --> and its end")
    return page[: place.end(1)] + f"\n{text}\n" + page[place.start(2) :]
