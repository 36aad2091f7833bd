"""docs/figures.md: its lists of columns, tables and figures are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from ebbflow.report.export.frames import TABLES, table
from ebbflow.report.figures.gallery import FIGURES
from tests.report.run_views import comparison

FOLDER = Path(__file__).parents[3] / "docs"
PAGE = (FOLDER / "figures.md").read_text(encoding="utf-8")


def test_every_column_is_listed() -> None:
    lists = PAGE.split("<!-- columns -->")[1].split("<!-- /columns -->")[0]
    parts = re.split(r"^\*\*(\w+)\*\*", lists, flags=re.MULTILINE)[1:]
    listed = {
        name: tuple(re.findall(r"^\| `([\w.]+)` \|", text, flags=re.MULTILINE))
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    assert listed == {name: table([comparison()], name).names for name in TABLES}


def test_every_figure_is_shown() -> None:
    assert re.findall(r"^### (\w+)$", PAGE, flags=re.MULTILINE) == list(FIGURES)
    assert re.findall(r"\(figures/(\w+)\.png\)", PAGE) == list(FIGURES)
    assert {path.stem for path in (FOLDER / "figures").iterdir()} == set(FIGURES)
