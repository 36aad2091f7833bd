"""One command for each page or table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbflow.cli.options import help_if_alone
from ebbflow.core.errors import EbbflowError

app = typer.Typer(
    help="Make the runs behind a page of the documentation and write its tables.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _root(context: typer.Context) -> None:
    help_if_alone(context)


def _existing(page: Path) -> Path:
    if not page.is_file():
        raise EbbflowError(f"--out {page}: there is no such page; name one that has the tables")
    return page


def _in_folder(page: Path) -> Path:
    if not page.parent.is_dir():
        raise EbbflowError(f"--out {page}: there is no folder {page.parent}; make it first")
    return page


@app.command("bounds", short_help="Fill the tables of runs in docs/theory.md.")
def bounds(
    out: Annotated[
        Path, typer.Option("--out", metavar="PAGE", help="The page whose tables are filled.")
    ] = Path("docs/theory.md"),
) -> None:
    """Compare runs on the demo and on MNIST with both bounds; fill the tables and bound.png."""
    page = _existing(out)
    from benchmarks.pages.bounds import write_tables

    write_tables(page)


@app.command("combinations", short_help="Write docs/combinations.md.")
def combinations(
    out: Annotated[
        Path, typer.Option("--out", metavar="PAGE", help="The page; rows that it has are kept.")
    ] = Path("docs/combinations.md"),
) -> None:
    """Run every data set with every algorithm and every start at a small scale."""
    page = _in_folder(out)
    from benchmarks.pages.combinations import write_page

    write_page(page)


@app.command("precision", short_help="Write docs/precision.md.")
def precision(
    out: Annotated[Path, typer.Option("--out", metavar="PAGE", help="The page.")] = Path(
        "docs/precision.md"
    ),
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of each run.")] = 100,
) -> None:
    """Compare the accuracy and the speed of bfloat16 and float32 on SVHN."""
    page = _in_folder(out)
    from benchmarks.pages.precision import write_page

    write_page(page, rounds)


@app.command("surveys", short_help="Fill the tables of surveys in docs/costs.md.")
def surveys(
    out: Annotated[
        Path, typer.Option("--out", metavar="PAGE", help="The page whose tables are filled.")
    ] = Path("docs/costs.md"),
) -> None:
    """Compare a survey of the learned start with a round of training, on the air and in all."""
    page = _existing(out)
    from benchmarks.pages.surveys import write_tables

    write_tables(page)


@app.command("figures", short_help="Draw the pictures of docs/figures.md, and docs/demo.png.")
def figures(
    out: Annotated[
        Path, typer.Option("--out", metavar="PAGE", help="The page whose tables are filled.")
    ] = Path("docs/figures.md"),
) -> None:
    """Run the demo, draw its figures, and fill the page's tables."""
    page = _existing(out)
    from benchmarks.pages.figures import write_page

    write_page(page)


@app.command("history", short_help="Print how long a choice among many sessions takes.")
def history(
    sessions: Annotated[int, typer.Option("--sessions", min=10, help="Past sessions.")] = 10_000,
    scale: Annotated[float, typer.Option("--scale", min=0, help="The warm start's scale R.")] = 100,
) -> None:
    """Time the warm start's choice among the past sessions of a ResNet-34 (Linux)."""
    from benchmarks.pages.history import print_table

    print_table(sessions, scale)


@app.command("resnet", short_help="Print the time of a ResNet-18 step, layer by layer.")
def resnet(
    batch: Annotated[int, typer.Option("--batch", min=1, help="Images per step.")] = 128,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Repeats; the best counts.")
    ] = 10,
) -> None:
    """Time each kind of convolution of ResNet-18, and whole steps, on one thread."""
    from benchmarks.pages.resnet import print_tables

    print_tables(batch, repeats)
