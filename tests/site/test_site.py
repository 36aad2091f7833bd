"""The site: no warning, nothing broken, nothing fetched, and everything in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from mkdocs.utils.yaml import yaml_load

import ebbflow
import ebbflow.flower
from ebbflow.cli import app
from ebbflow.config.merge import keys
from tests.site.html_checks import (
    HtmlPage,
    broken_links,
    foreign_requests,
    missing_anchors,
    read_site,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, HtmlPage]:
    return read_site(site)


def test_no_link_and_no_anchor_is_broken(pages: dict[str, HtmlPage], site: Path) -> None:
    assert len(pages) > 30
    assert list(broken_links(pages, site)) == []


def test_nothing_is_fetched_from_another_host(pages: dict[str, HtmlPage], site: Path) -> None:
    assert list(foreign_requests(pages, site)) == []


def test_nothing_of_this_machine_is_in_the_pages(pages: dict[str, HtmlPage]) -> None:
    for place, page in pages.items():
        assert str(ROOT) not in "".join(page.text), place


def test_every_key_has_its_place(pages: dict[str, HtmlPage]) -> None:
    assert missing_anchors(pages, "configuration.html", keys()) == []


def options(command: Any, words: tuple[str, ...] = ("ebbflow",)) -> Iterator[str]:
    """Yield the anchor that each command and each option and argument should have."""
    yield "-".join(words)
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            longest = sorted(parameter.opts, key=len)[-1]
            yield f"{'-'.join(words)}--{longest.lstrip('-')}"
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from options(below, (*words, name))


def test_every_command_and_option_has_its_place(pages: dict[str, HtmlPage]) -> None:
    wanted = list(options(typer.main.get_command(app)))
    assert {"ebbflow-compare--rounds", "ebbflow-history-show--session"} <= set(wanted)
    assert missing_anchors(pages, "reference/commands.html", wanted) == []


def test_every_public_name_has_its_place(pages: dict[str, HtmlPage]) -> None:
    wanted = [f"ebbflow.{name}" for name in ebbflow.__all__]
    wanted += [f"ebbflow.flower.{name}" for name in ebbflow.flower.__all__]
    assert missing_anchors(pages, "reference/python.html", wanted) == []


def in_navigation(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    else:
        for below in part if isinstance(part, list) else part.values():
            yield from in_navigation(below)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    named = list(in_navigation(nav))
    docs = ROOT / "docs"
    there = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    there += [
        path.relative_to(docs).with_suffix(".md").as_posix() for path in docs.rglob("*.ipynb")
    ]
    assert sorted(named) == sorted(there)


def test_search_works_from_the_file_system_and_nothing_else_is_asked(
    site: Path, browser: Browser
) -> None:
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "how-it-works.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("pseudo-gradient")
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    assert "Glossary" in page.inner_text(".md-search-result__list")
    page.close()
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
