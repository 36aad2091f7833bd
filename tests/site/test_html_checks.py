"""The checks of the site find what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.html_checks import broken_links, foreign_requests, missing_anchors, read_site


def site(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        path = folder / f"{name.replace('__', '/')}.html"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_links_that_lead_somewhere_are_none_of_our_business(tmp_path: Path) -> None:
    site(
        tmp_path,
        index='<a href="a/b.html#x">b</a> <a href="#y">y</a> <p id="y"> <a href="pic.png">p</a>'
        '<a href="https://example.org/nowhere#no">elsewhere</a> <a href="mailto:a@b">mail</a>',
        a__b='<h2 id="x">x</h2> <a href="../index.html">home</a> <a href="..%2Findex.html">e</a>',
    )
    (tmp_path / "pic.png").touch()
    assert list(broken_links(read_site(tmp_path), tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('<a href="b.html">b</a>', "index.html: b.html leads to no file"),
        ('<a href="#x">x</a>', "index.html: #x leads to no anchor"),
        ('<a href="index.html#x">x</a>', "index.html#x leads to no anchor"),
        ('<a href="/index.html">x</a>', "is no relative link"),
        ('<img src="a.png">', "a.png leads to no file"),
        ('<script src="a.js"></script>', "a.js leads to no file"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, text: str, says: str) -> None:
    (problem,) = broken_links(read_site(site(tmp_path, index=text)), tmp_path)
    assert says in problem


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        '<link rel="preconnect" href="//fonts.example.org">',
        '<img src="http://example.org/badge.svg">',
        '<img srcset="https://example.org/a.png 2x">',
        '<iframe src="https://example.org"></iframe>',
        "<style>@import 'https://example.org/a.css'</style>",
        '<p style="background: url(https://example.org/a.png)">',
        '<svg><image href="https://example.org/a.png"/></svg>',
    ],
)
def test_what_another_host_would_be_asked_for_is_found(tmp_path: Path, text: str) -> None:
    assert len(list(foreign_requests(read_site(site(tmp_path, index=text)), tmp_path))) == 1


def test_a_style_sheet_that_fetches_a_font_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@font-face{src: url("//example.org/a.woff2")}')
    assert list(foreign_requests({}, tmp_path)) == ["a.css fetches something"]


def test_a_link_to_click_and_a_picture_of_our_own_are_no_requests(tmp_path: Path) -> None:
    text = (
        '<a href="https://example.org">e</a> <img src="a.png"> <img src="data:image/png;base64,AA">'
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    )
    assert list(foreign_requests(read_site(site(tmp_path, index=text)), tmp_path)) == []


def test_a_key_without_a_place_is_found(tmp_path: Path) -> None:
    pages = read_site(site(tmp_path, configuration='<code id="lr.power">lr.power</code>'))
    wanted = ["lr.power", "lr.floor"]
    assert missing_anchors(pages, "configuration.html", wanted) == ["lr.floor"]
