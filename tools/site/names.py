"""Public names of ebbflow, put into docs/reference/python.md with signature and docstring.

The page has comments such as ``<!-- names: compare, run -->``; mkdocstrings fills in what the code
says of each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGE = "reference/python.md"
MARK = re.compile(r"^<!-- names: ([\w., \n]+?) -->$", re.MULTILINE)


def named(page: str) -> list[str]:
    """Return the names that a page asks for.

    >>> named("<!-- names: compare, run -->")
    ['compare', 'run']
    """
    return [name for found in MARK.findall(page) for name in re.split(r",\s*", found)]


def filled(page: str) -> str:
    """Return the page with an instruction to mkdocstrings for every name."""

    def new(found: re.Match[str]) -> str:
        return "\n\n".join(f"::: ebbflow.{name}" for name in named(found[0]))

    return MARK.sub(new, page)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the names in."""
    return filled(markdown) if page.file.src_uri == PAGE else markdown
