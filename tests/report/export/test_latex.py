"""LaTeX: tables compile by themselves, and no text of a user's is a command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ebbflow.report.export.frames import TABLES, table
from ebbflow.report.export.latex import latex
from ebbflow.report.export.latex_text import latex_text
from ebbflow.report.export.printed import sheets
from ebbflow.report.export.sheets import HeadCell, Sheet, SheetCell
from tests.report.export.tex import printed
from tests.report.run_views import comparison, lower_is_better, two_algorithms, wards

COMMANDS = re.compile(
    r"""\\(?: text(?:backslash|asciicircum|asciitilde|less|greater|bar)\{\}
    | char(?:34|92|96)\{\} | [{}$&\#%_] | ldots\{\} | (?:ss|ae|AE|oe|OE|o|O|l|L|i)\{\}
    | [`'^~=."uvHrdcb]\{(?:\\[ij]|[A-Za-z])\} | texttt\{U\+[0-9A-F]+\} )
    | \$(?:-|\^\\circ|\\[A-Za-z]+)\$ | \{[][*',-]\} | ~""",
    re.VERBOSE,
)
"""Everything with a backslash or another special character that a text may become."""


@given(st.text(max_size=40))
@example(r"\input{/etc/passwd}")
@example("'' -- ,, ?` !` << \" [x] * $a$ ^^41")
def test_nothing_special_is_left_of_a_text(text: str) -> None:
    result = latex_text(text)
    assert result.isascii()
    assert not set(COMMANDS.sub("", result)) & set('\\{}$&#%_^~<>|"`[]*\n\r\t')
    # Pairs would become other characters.
    assert not re.search(r"''|,,", result)
    assert "--" not in result or set(text) & set("–—")


def test_accents_greek_and_strangers() -> None:
    assert latex_text("é ï Ł ß α Ω") == r"\'{e} \"{\i} \L{} \ss{} $\alpha$ $\Omega$"
    assert latex_text("病") == r"\texttt{U+75C5}"


def test_a_table_says_what_it_is() -> None:
    text = latex(sheets([comparison()], "summary"))
    assert text.startswith("% Needs \\usepackage{booktabs} in the preamble.\n")
    assert "\\label{tab:digits-fedavg-accuracy-2}" in text
    assert "\\caption{Accuracy (\\%) over the first 2 rounds after a transition" in text
    assert "Mean $\\pm$ standard deviation over 2 seeds" in text
    assert "\\multicolumn{2}{c}{transition}" in text
    assert "\\begin{document}" not in text


@pytest.mark.parametrize("make", [comparison, lower_is_better])
def test_the_best_of_each_column_is_bold(make: Any) -> None:
    rows = table([make()], "summary").rows
    text = latex(sheets([make()], "summary"))
    bold = re.findall(r"\\textbf\{([0-9.]+)", text)
    assert len(bold) == sum(row["best"] for row in rows)
    means = [f"{row['mean']:.2f}" for row in rows if row["best"]]
    assert {b[:4] for b in bold} == {m[:4] for m in means}


def test_one_method_alone_is_not_the_best() -> None:
    from ebbflow.report.figures.gallery import narrowed  # noqa: PLC0415

    text = latex(sheets([narrowed(comparison(), methods=["previous"])], "summary"))
    assert "textbf" not in text


def test_what_is_long_goes_on_over_pages() -> None:
    text = latex(sheets([comparison()], "rounds"))
    assert "\\begin{longtable}" in text
    assert "\\usepackage{longtable}" in text


# --- compiled ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_tables_compile_and_hold_the_numbers(tmp_path: Path) -> None:
    views = (comparison(), two_algorithms(), wards())
    everything = [sheet for view in views for name in TABLES for sheet in sheets([view], name)]
    everything += [sheet for name in TABLES for sheet in sheets(views, name)]
    text = printed(latex(everything, document=True), tmp_path)
    for row in table([comparison()], "summary").rows:
        assert f"{row['mean']:.2f} ± {row['deviation']:.2f}" in text.replace("\u2009", " ")
    assert r"\input{/etc/passwd}" in text
    assert "root:" not in text
    assert "$x 1$ & 50 % #1" in text.replace("_", " ")
    assert "<b>7</b>" in text


@pytest.mark.slow
def test_every_kind_of_character_compiles(tmp_path: Path) -> None:
    ranges = (range(0x20, 0x180), range(0x384, 0x3D0), range(0x2010, 0x2030), range(0x1E00, 0x1E20))
    characters = [chr(n) for some in ranges for n in some]
    doubled = [c * 2 for c in characters]
    cells = [[SheetCell(a), SheetCell(b)] for a, b in zip(characters, doubled, strict=True)]
    # At the beginning of a row: a length in brackets or a star would belong to the row before.
    cells += [[SheetCell("[9cm] x"), SheetCell("y")], [SheetCell("* x"), SheetCell("y")]]
    title, note = "".join(characters[:200]), "".join(characters[200:])
    head = [HeadCell("".join(doubled[:95])), HeadCell("\\\\", over="#")]
    sheet = Sheet(title, note, "tab:characters", head, [True, True], [cells])
    text = printed(latex([sheet], document=True), tmp_path)
    for sign in "!#$%&()*+/:;=?@[\\]{|}":  # an underscore is a rule, and no text
        assert sign in text
    assert "[9cm] x" in text
