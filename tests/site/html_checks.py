"""What must hold for the pages of a built site: links that lead somewhere, and nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself when it shows a page, by element and attribute.
FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "use": ("href",),
    "video": ("src", "poster"),
}
IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?(https?:)?//")


class HtmlLink(NamedTuple):
    """Where an element of a page points to."""

    element: str
    attribute: str
    target: str


class HtmlPage(HTMLParser):
    """A page: its anchors, its links, and the styles within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[HtmlLink] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called and where it points to."""
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            if name in ("href", "src", "srcset", "data", "poster") and value is not None:
                self.links.append(HtmlLink(tag, name, value))
            if name == "style" and value:
                self.text.append(value)

    def handle_data(self, data: str) -> None:
        """Note the text, styles included."""
        self.text.append(data)


def read_site(folder: Path) -> dict[str, HtmlPage]:
    """Return all pages of a site by their paths.

    The page for addresses that do not exist is left out: only a server shows it.
    """
    return {
        path.relative_to(folder).as_posix(): HtmlPage(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.html"))
        if path != folder / "404.html"
    }


def broken_links(pages: dict[str, HtmlPage], folder: Path) -> Iterator[str]:
    """Yield the links within the site that lead to no file, or to no anchor of a page."""
    for place, page in pages.items():
        for link in page.links:
            parts = urlsplit(link.target)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            target = place
            if path.startswith("/"):
                yield f"{place}: {link.target} is no relative link"
                continue
            if path:
                file = (folder / place).parent / path
                if not file.is_file():
                    yield f"{place}: {link.target} leads to no file"
                    continue
                target = file.resolve().relative_to(folder.resolve()).as_posix()
            anchor = unquote(parts.fragment)
            if anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{place}: {link.target} leads to no anchor"


def foreign_requests(pages: dict[str, HtmlPage], folder: Path) -> Iterator[str]:
    """Yield what a browser would fetch from another host to show the pages."""
    for place, page in pages.items():
        for link in page.links:
            if link.attribute not in FETCHED.get(link.element, ()):
                continue
            if link.element == "link" and link.target == "":
                continue
            if re.match(r"(https?:)?//", link.target.strip(), re.IGNORECASE):
                yield f"{place}: <{link.element}> fetches {link.target}"
        if IN_STYLES.search("".join(page.text)):
            yield f"{place}: a style fetches something"
    for path in sorted(folder.rglob("*.css")):
        if IN_STYLES.search(path.read_text("utf-8")):
            yield f"{path.relative_to(folder)} fetches something"


def missing_anchors(pages: dict[str, HtmlPage], place: str, wanted: Iterable[str]) -> list[str]:
    """Return what has no anchor on a page and should have one."""
    return [anchor for anchor in wanted if anchor not in pages[place].anchors]
