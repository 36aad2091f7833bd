r"""Tables in LaTeX, with the rules of booktabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ebbflow.core.names import printable
from ebbflow.report.export.latex_text import latex_text
from ebbflow.report.export.sheets import Sheet, SheetCell

LONG = 45
"""Rows that fit on a page; more of them go on over the next ones."""
NARROW = 7
"""Columns that fit in small type; more of them are set smaller."""


def latex(sheets: Sequence[Sheet], *, document: bool = False) -> str:
    """Return tables to be input by a document, or as a document that compiles by itself."""
    packages = ["booktabs"]
    if any(sheet.length > LONG for sheet in sheets):
        packages.append("longtable")
    tables = "\n".join(line for sheet in sheets for line in (*_table(sheet), ""))
    used = "".join(f"\\usepackage{{{package}}}" for package in packages)
    if not document:
        return f"% Needs {used} in the preamble.\n{tables}"
    head = ["\\documentclass{article}", "\\usepackage[margin=2cm]{geometry}", used]
    return "\n".join([*head, "\\begin{document}", "", tables, "\\end{document}", ""])


def _table(sheet: Sheet) -> Iterator[str]:
    # In a comment only the end of the line is special, and no text has one.
    yield f"% {_ascii(sheet.title)}; {_ascii(sheet.note)}"
    columns = "".join("l" if words else "r" for words in sheet.words)
    caption = [
        f"  \\caption{{{latex_text(f'{_sentence(sheet.title)} {_sentence(sheet.note)}')}}}",
        f"  \\label{{{sheet.label}}}",
    ]
    size = "\\small" if len(sheet.head) <= NARROW else "\\footnotesize"
    type_size = f"{size}\\setlength{{\\tabcolsep}}{{4pt}}"
    if sheet.length > LONG:
        yield f"{{{type_size}"
        yield f"\\begin{{longtable}}{{@{{}}{columns}@{{}}}}"
        yield from (caption[0], f"{caption[1]} \\\\")
        yield from (*_head(sheet), "    \\endfirsthead")
        yield from (*_head(sheet), "    \\endhead", "    \\bottomrule", "    \\endfoot")
        yield from _body(sheet)
        yield "\\end{longtable}}"
        return
    yield from ("\\begin{table}", "  \\centering", *caption, "  \\smallskip", f"  {type_size}")
    yield f"  \\begin{{tabular}}{{@{{}}{columns}@{{}}}}"
    yield from _head(sheet)
    yield from _body(sheet)
    yield from ("    \\bottomrule", "  \\end{tabular}", "\\end{table}")


def _ascii(text: str) -> str:
    return printable(text).encode("ascii", "backslashreplace").decode("ascii")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _head(sheet: Sheet) -> Iterator[str]:
    """Yield the lines above the rows, with a line more for what columns have in common."""
    yield "    \\toprule"
    spans = [(over, len(list(cells))) for over, cells in groupby(c.over for c in sheet.head)]
    if any(over for over, _ in spans):
        cells, rules, place = [], "", 1
        for over, count in spans:
            shared = f"\\multicolumn{{{count}}}{{c}}{{{latex_text(over)}}}"
            cells += [shared] if over else [""] * count
            rules += f" \\cmidrule(lr){{{place}-{place + count - 1}}}" if over else ""
            place += count
        yield f"    {' & '.join(cells)} \\\\"
        yield f"   {rules}"
    yield _row([SheetCell(cell.name) for cell in sheet.head])
    yield "    \\midrule"


def _body(sheet: Sheet) -> Iterator[str]:
    for place, group in enumerate(sheet.groups):
        if place:
            yield "    \\midrule"
        yield from map(_row, group)


def _row(cells: Sequence[SheetCell]) -> str:
    texts = (latex_text(cell.text).replace(" $\\pm$ ", "\\,$\\pm$\\,") for cell in cells)
    bold = (f"\\textbf{{{t}}}" if c.best else t for c, t in zip(cells, texts, strict=True))
    return f"    {' & '.join(bold)} \\\\"
