"""report: one page that shows a run, or many, in any browser and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbflow.cli import completion
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.values import FLOATS
from ebbflow.core.names import printable

app = typer.Typer()


@app.command(
    short_help="Write a run, or many, as one page to look at.",
    epilog=examples(
        "ebbflow report runs/demo --open",
        "ebbflow report runs --out all.html",
        "ebbflow report runs/demo --target 0.9,85",
    ),
)
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run folders, or folders that hold several.",
            autocompletion=completion.run_folders,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The page; by default report.html in the run."),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar=FLOATS,
            help="Accuracies to reach: up to 1 a fraction of the reference's, above that a "
            "percentage.",
        ),
    ] = "0.95",
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    as_json: Annotated[bool, json_option("what the page tells")] = False,
) -> None:
    """Write one page that shows everything about a run, or about many.

    It needs no network and no other file, and the runs may still be going on.
    """
    from ebbflow.analysis.metrics import parse_target
    from ebbflow.report.page.content import content_of_folders

    texts = dict.fromkeys(part.strip() for part in target.split(","))
    content = content_of_folders(runs, [parse_target(text) for text in texts])
    if as_json:
        print_json(content)
        return
    from ebbflow.report.page.writing import default_page, verdict_lines, write_page

    path = out or default_page(runs)
    write_page(path, content)
    for line in verdict_lines(content):
        typer.echo(line)
    typer.echo(f"report   {printable(str(path))}")
    if browser:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
