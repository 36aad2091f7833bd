"""metrics: how fast a run's methods recover, what they gain, and what they cost."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import AsJson, RunPath

app = typer.Typer()


@app.command(short_help="Show each method's recovery time, gain and cost.")
def metrics(
    folder: RunPath,
    target: Annotated[
        str,
        typer.Option(
            help="Comma-separated accuracies to reach: up to 1 a fraction of the reference's, "
            "above that a percentage."
        ),
    ] = "0.95,0.97",
    of: Annotated[
        str,
        typer.Option(
            help="What a fraction refers to: the reference's peak or final accuracy in a session."
        ),
    ] = "peak",
    reference: Annotated[
        str | None,
        typer.Option(help="The method that others are compared with; by default warm_start."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show how fast each method recovers after a transition, what it gains and what it costs."""
    from rich.console import Console

    from ebbflow.analysis.metrics import parse_of, parse_target
    from ebbflow.analysis.run_metrics import run_metrics
    from ebbflow.plugins import warn_of_lacking
    from ebbflow.report.metric_tables import metric_tables, metrics_json
    from ebbflow.runs.configuration import read_config

    point = parse_of(of)
    texts = dict.fromkeys(part.strip() for part in target.split(","))
    targets = [parse_target(text, point) for text in texts]
    warn_of_lacking(read_config(folder).plugins)
    measured = run_metrics(folder, targets, reference)
    if json:
        typer.echo(metrics_json(measured))
        return
    console = Console()
    if not measured.seeds:
        first = measured.pilot + 3
        typer.echo(f"no transition is over yet: the first with a choice is session {first}")
    for table in metric_tables(measured):
        console.print(table)
    if not measured.accounts:
        typer.echo("no costs: the run was made with a version that did not count them")
