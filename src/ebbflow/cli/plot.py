"""plot: figures of runs for papers and talks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ebbflow.cli import completion
from ebbflow.cli.export import check_place, views_of
from ebbflow.cli.options import AlgorithmNames, MethodNames
from ebbflow.cli.printing import examples
from ebbflow.cli.values import INTEGERS, names
from ebbflow.core.errors import EbbflowError
from ebbflow.core.seed_lists import seeds

app = typer.Typer()


def _file(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="FILE", help=what)


@app.command(
    short_help="Draw a figure of runs as PDF, SVG or PNG.",
    epilog=examples(
        "ebbflow plot runs/demo --pdf curves.pdf",
        "ebbflow plot runs/demo --figure transitions --width page --pdf transitions.pdf",
        "ebbflow plot runs/demo --figure mixture --seed 200 --png mixture.png",
        "ebbflow plot runs/a runs/b --methods learned,previous --svg both.svg",
    ),
)
def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Run folders, or folders of several runs.",
            autocompletion=completion.run_folders,
        ),
    ],
    figure: Annotated[
        str,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="curves, transitions, timeline, mixture, devices or costs.",
        ),
    ] = "curves",
    pdf: Annotated[Path | None, _file("pdf", "Write a PDF, with its fonts.")] = None,
    svg: Annotated[Path | None, _file("svg", "Write an SVG.")] = None,
    png: Annotated[Path | None, _file("png", "Write a PNG, 300 dots an inch.")] = None,
    width: Annotated[
        str,
        typer.Option(
            "--width",
            metavar="column|page|INCHES",
            help="column is 3.5 inches, page 7.16.",
        ),
    ] = "column",
    algorithm: AlgorithmNames = None,
    seed: Annotated[
        str | None,
        typer.Option("--seed", metavar=INTEGERS, help="Seeds to show, by default all."),
    ] = None,
    methods: MethodNames = None,
) -> None:
    """Draw a figure of one or several runs, at the width of a column or of a page."""
    files = {"pdf": pdf, "svg": svg, "png": png}
    wanted = {kind: path for kind, path in files.items() if path is not None}
    if not wanted:
        raise EbbflowError(
            "no file is named: add --pdf, --svg or --png, as in `ebbflow plot runs/demo --pdf "
            "curves.pdf`"
        )
    for kind, path in wanted.items():
        check_place(f"--{kind}", path)
    of_these = names(algorithm) if algorithm else []
    by_these = names(methods) if methods else []
    under_these = seeds(seed, "--seed") if seed else []
    from ebbflow.core.files import write_atomically
    from ebbflow.report.figures.gallery import figure as drawn_figure
    from ebbflow.report.figures.gallery import narrowed
    from ebbflow.report.figures.style import encoded

    views = [narrowed(view, of_these, by_these, under_these) for view in views_of(runs)]
    picture = drawn_figure(views, figure, width)
    for kind, path in wanted.items():
        write_atomically(path, encoded(picture, kind))
        typer.echo(f"picture  {path}")
