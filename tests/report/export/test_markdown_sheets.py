"""Markdown: a reader of it finds the cells as they were, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ebbflow.core.names import printable
from ebbflow.report.export.frames import TABLES
from ebbflow.report.export.markdown_sheets import markdown
from ebbflow.report.export.printed import sheets
from ebbflow.report.export.sheets import HeadCell, Sheet, SheetCell
from tests.report.run_views import comparison, two_algorithms, wards

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PLAIN = {"text", "strong_open", "strong_close"}
TEXTS = st.text(max_size=30) | st.sampled_from(
    ["a|b", "\\|", "**x**", "_a_", "[a](b)", "<b>x</b>", "&amp;", "`c`", "~~d~~", "![i](x)", "\\"]
)


def cells(text: str) -> list[list[str]]:
    """Return the cells of all tables, each of which may only hold text, some of it in bold."""
    rows: list[list[str]] = []
    tokens = PARSER.parse(text)
    for place, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            inside: Token = tokens[place + 1]
            assert {child.type for child in inside.children or ()} <= PLAIN, inside.content
            rows[-1].append("".join(child.content for child in inside.children or ()))
    return rows


def shown(text: str) -> str:
    return printable(text).strip()


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("make", [comparison, two_algorithms, wards])
def test_every_cell_comes_back(name: str, make: Any) -> None:
    printed = sheets([make()], name)
    expected = [
        row
        for sheet in printed
        for row in (
            [cell.title for cell in sheet.head],
            *([cell.text for cell in row] for group in sheet.groups for row in group),
        )
    ]
    found = cells(markdown(printed))
    assert found == [[shown(cell) for cell in row] for row in expected]


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_hostile_texts_come_back_as_text(texts: list[str]) -> None:
    head = [HeadCell(text) for text in texts]
    row = [SheetCell(text) for text in texts]
    sheet = Sheet("title", "note", "tab:x", head, [True] * len(texts), [[row]])
    assert cells(markdown([sheet])) == [[shown(text) for text in texts]] * 2


def test_the_best_is_bold_and_the_caption_says_what_is_what() -> None:
    text = markdown(sheets([comparison()], "summary"))
    assert "accuracy (%) over the first 2 rounds after a transition (fedavg, digits)" in text
    assert "mean ± standard deviation over 2 seeds" in text
    assert "| **" in text
    assert "| warm_start |" in text
