"""export: tables of runs for spreadsheets, data frames and papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ebbflow.cli import completion
from ebbflow.cli.printing import examples
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebbflow.analysis.views.run_view import RunView

app = typer.Typer()

FORMATS = ("--csv", "--parquet", "--latex", "--markdown")
OUTPUT = "-"
"""Instead of a file: standard output."""
PRINTED = ("latex", "markdown")
"""Formats for readers; without --table they show the summary, the others every round."""


class ExportCommand(TyperCommand):
    """A command whose formats need not name a file."""

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser to which a format that no file follows means standard output."""
        parser: Any = super().make_parser(ctx)
        usual = parser.parse_args
        parser.parse_args = lambda args: usual(with_outputs(args))
        return parser


def with_outputs(arguments: list[str]) -> list[str]:
    """Return arguments in which every format has its file, or standard output.

    >>> with_outputs(["runs/demo", "--csv", "--latex", "table.tex"])
    ['runs/demo', '--csv', '-', '--latex', 'table.tex']
    """
    given: list[str] = []
    for place, argument in enumerate(arguments):
        given.append(argument)
        if argument in FORMATS and not _is_file(arguments[place + 1 : place + 2]):
            given.append(OUTPUT)
    return given


def _is_file(following: list[str]) -> bool:
    """Whether the next argument is a file to write: neither an option nor the folder of a run."""
    if not following:
        return False
    return following[0] == OUTPUT or not (
        following[0].startswith("-") or Path(following[0]).is_dir()
    )


def _format(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="[FILE]", help=what)


@app.command(
    cls=ExportCommand,
    short_help="Write a run's tables as CSV, Parquet, LaTeX or Markdown.",
    epilog=examples(
        "ebbflow export runs/demo --markdown",
        "ebbflow export runs/demo --latex table.tex",
        "ebbflow export runs/demo --csv rounds.csv",
        "ebbflow export runs --table summary --csv sweep.csv",
        "ebbflow export runs/demo --table costs --latex costs.tex --document",
    ),
)
def export(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Run folders, or folders of several runs.",
            autocompletion=completion.run_folders,
        ),
    ],
    csv: Annotated[Path | None, _format("csv", "As CSV.")] = None,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FILE", help="As Parquet, which needs a file."),
    ] = None,
    latex: Annotated[Path | None, _format("latex", "As a LaTeX table (booktabs).")] = None,
    markdown: Annotated[Path | None, _format("markdown", "As a Markdown table.")] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="rounds, summary, metrics, costs, sessions, devices or starts; by default rounds "
            "for CSV and Parquet, and the summary for LaTeX and Markdown.",
        ),
    ] = None,
    document: Annotated[
        bool,
        typer.Option("--document", help="LaTeX: a whole document, which compiles by itself."),
    ] = False,
) -> None:
    """Write tables of one or several runs; without a FILE they are printed."""
    formats = {"csv": csv, "parquet": parquet, "latex": latex, "markdown": markdown}
    wanted = {name: path for name, path in formats.items() if path is not None}
    _check(wanted, document=document)
    from ebbflow.core.files import write_atomically

    views = views_of(runs)
    for kind, path in wanted.items():
        name = table or ("summary" if kind in PRINTED else "rounds")
        content = _content(views, kind, name, document=document)
        if str(path) == OUTPUT:
            typer.echo(content.decode(), nl=False)
        else:
            write_atomically(path, content)


def _check(wanted: dict[str, Path], *, document: bool) -> None:
    """Raise an error unless it is clear what to write and where."""
    if not wanted:
        raise EbbflowError(
            "no format is named: add --csv, --parquet, --latex or --markdown, as in `ebbflow "
            "export runs/demo --latex table.tex`"
        )
    printed = [name for name, path in wanted.items() if str(path) == OUTPUT]
    if "parquet" in printed:
        raise EbbflowError(
            "--parquet needs a file, for it is no text: as in --parquet rounds.parquet"
        )
    if len(printed) > 1:
        raise EbbflowError(
            f"--{printed[0]} and --{printed[1]} would be printed one after the other: name a file "
            "for one of them"
        )
    if document and "latex" not in wanted:
        raise EbbflowError("--document is about LaTeX: add --latex")
    for name, path in wanted.items():
        check_place(f"--{name}", path)


def check_place(option: str, path: Path) -> None:
    """Raise an error unless a file can be written there."""
    if path.is_dir():
        raise EbbflowError(f"{option} {path} is a folder: name a file")
    if not path.parent.is_dir():
        raise EbbflowError(f"{option} {path}: there is no folder {path.parent}; make it first")


def views_of(runs: Sequence[Path]) -> list[RunView]:
    """Return the runs that are named, and those in folders that are named."""
    from dataclasses import replace

    from ebbflow.analysis.views.run_view import check_rounds, load_view
    from ebbflow.cli.states import tell_state
    from ebbflow.plugins import warn_of_lacking
    from ebbflow.runs.finding import run_folders, told_apart

    folders = run_folders(runs)
    views = []
    for folder, name in zip(folders, told_apart(folders), strict=True):
        view = replace(load_view(folder), name=name)
        tell_state(folder)
        warn_of_lacking(view.config.plugins)
        check_rounds(view)
        views.append(view)
    return views


def _content(views: Sequence[RunView], kind: str, name: str, *, document: bool) -> bytes:
    from ebbflow.report.export.files import csv_text, parquet_bytes
    from ebbflow.report.export.frames import table
    from ebbflow.report.export.latex import latex
    from ebbflow.report.export.markdown_sheets import markdown
    from ebbflow.report.export.printed import sheets

    if kind == "parquet":
        return parquet_bytes(table(views, name))
    if kind == "csv":
        return csv_text(table(views, name)).encode()
    printed = sheets(views, name)
    return (latex(printed, document=document) if kind == "latex" else markdown(printed)).encode()
