"""metrics: how soon a run's methods recover, how much they gain, and what they cost."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import AsJson, RunPath

app = typer.Typer()


@app.command()
def metrics(
    folder: RunPath,
    target: Annotated[
        str,
        typer.Option(
            help="Accuracies to reach, by commas: up to 1 as a share of the reference's, above it "
            "in percent."
        ),
    ] = "0.95,0.97",
    of: Annotated[
        str, typer.Option(help="A share of the reference's peak in a session, or of its final.")
    ] = "peak",
    reference: Annotated[
        str | None,
        typer.Option(help="The method that others are compared with; by default warm_start."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show how soon each method recovers after a transition, what is gained, and the costs."""
    from rich.console import Console

    from ebbflow.analysis.metrics import parse_of, parse_target
    from ebbflow.report.measures import as_json, measure, tables

    point = parse_of(of)
    texts = dict.fromkeys(part.strip() for part in target.split(","))
    found = measure(folder, [parse_target(text, point) for text in texts], reference)
    if json:
        typer.echo(as_json(found))
        return
    console = Console()
    if not found.seeds:
        first = found.pilot + 3
        typer.echo(f"no transition is over yet: the first with a choice is session {first}")
    for table in tables(found):
        console.print(table)
    if not found.accounts:
        typer.echo("no costs: the run was made by a version that did not count them")
