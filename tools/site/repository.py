"""Files of the checkout that pages link to, such as ``../src/ebbflow/starts/learned.py``.

Such links work where the repository itself is read. A site has only what lies in docs/, so each of
these files gets a page there: Markdown as it is, everything else as a listing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FOLDER = "repository"
"""Where the pages of these files lie in the site."""
LANGUAGES = {".c": "c", ".csv": "text", ".json": "json", ".py": "python", ".toml": "toml"}
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1`*[ ]*$", re.DOTALL | re.MULTILINE)


def page_of(path: str) -> str:
    """Return the page that shows a file of the checkout.

    >>> page_of("examples/algorithm1.py"), page_of("CONTRIBUTING.md")
    ('repository/examples/algorithm1.py.md', 'repository/CONTRIBUTING.md')
    """
    return f"{FOLDER}/{path}" if path.endswith(".md") else f"{FOLDER}/{path}.md"


def links(text: str) -> Iterator[str]:
    """Yield the relative links of a page, without those in its listings."""
    for found in LINK.finditer(FENCE.sub("", text)):
        if not re.match(r"[a-z]+:", found[1]):
            yield found[1]


def place_of(link: str, page: str) -> str:
    """Return the path in the checkout that a link on one of its files leads to.

    >>> place_of("../src/ebbflow/api.py", "docs/method.md"), place_of("docs/demo.png", "README.md")
    ('src/ebbflow/api.py', 'docs/demo.png')
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def translated(text: str, page: str, place: str) -> str:
    """Return a page whose links lead to places in the site.

    ``page`` is where the text lies in the checkout, and ``place`` where it lies in the site.
    """
    listings = [found.span() for found in FENCE.finditer(text)]

    def new(found: re.Match[str]) -> str:
        quoted = any(start <= found.start() < end for start, end in listings)
        if quoted or re.match(r"[a-z]+:", found[1]):
            return found[0]
        target = place_of(found[1], page)
        inside = target.removeprefix("docs/") if target.startswith("docs/") else page_of(target)
        return f"]({posixpath.relpath(inside, posixpath.dirname(place) or '.')}{found[2] or ''})"

    return LINK.sub(new, text)


def listing(path: str, text: str) -> str:
    """Return the page that shows a file which is no Markdown."""
    language = LANGUAGES.get(Path(path).suffix, "text")
    fence = "~" * max([3, *(len(found) + 1 for found in re.findall("~{3,}", text))])
    return f"# {posixpath.basename(path)}\n\n`{path}`\n\n{fence}{language}\n{text}{fence}\n"


def linked_files(root: Path, pages: dict[str, str]) -> dict[str, str]:
    """Return the page of every file outside docs/ that pages lead to, directly or not.

    ``pages`` are texts by their place in the checkout; so is what is returned, by place in the
    site.
    """
    shown: dict[str, str] = {}
    waiting = list(pages.items())
    while waiting:
        page, text = waiting.pop()
        for link in links(text):
            target = place_of(link, page)
            if target.startswith("docs/") or page_of(target) in shown:
                continue
            if target.startswith("..") or not (root / target).is_file():
                raise PluginError(f"{page} links to {link}, which is no file of the checkout")
            content = (root / target).read_text(encoding="utf-8")
            if target.endswith(".md"):
                waiting.append((target, content))
                shown[page_of(target)] = translated(content, target, page_of(target))
            else:
                shown[page_of(target)] = listing(target, content)
    return shown


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file of the checkout that the pages lead to."""
    root = Path(config.config_file_path).parent
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for place, text in linked_files(root, pages).items():
        extra = File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(extra)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to the pages of these files."""
    place = page.file.src_uri
    if place.startswith(f"{FOLDER}/"):
        return markdown
    return translated(markdown, f"docs/{place}", place)
