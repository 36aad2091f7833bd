"""Drawings in SVG as a part of the page, so that they know whether it is light or dark.

In an ``<img>`` a drawing would follow the system's preference and not the page's switch, and what
it says could not be read aloud. A drawing that moves also gets a switch to stop it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

IMAGE = re.compile(r'<img [^>]*?src="([^":]+\.svg)"[^>]*>')
PAUSE = '<label class="pause"><input type="checkbox"> stand still</label>'


def inlined(html: str, folder: Path) -> str:
    """Return a page with its drawings in it; their paths are relative to a folder."""

    def drawing(found: re.Match[str]) -> str:
        svg = (folder / found[1]).read_text(encoding="utf-8")
        moves = "@keyframes" in svg
        return f'<span class="drawing">{PAUSE if moves else ""}{svg}</span>'

    return IMAGE.sub(drawing, html)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the drawings in."""
    return inlined(html, Path(config.docs_dir) / posixpath.dirname(page.file.src_uri))
