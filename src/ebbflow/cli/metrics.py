"""metrics: how fast a run's methods recover, what they gain, and what they cost."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli import completion
from ebbflow.cli.options import RunPath
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.states import tell_state
from ebbflow.cli.values import FLOATS

app = typer.Typer()


@app.command(
    short_help="Show each method's recovery time, gain and cost.",
    epilog=examples(
        "ebbflow metrics runs/demo",
        "ebbflow metrics runs/demo --target 0.9,80 --reference previous",
        "ebbflow metrics runs/demo --json",
    ),
)
def metrics(
    folder: RunPath,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar=FLOATS,
            help="Accuracies to reach: up to 1 a fraction of the reference's, above that a "
            "percentage.",
        ),
    ] = "0.95,0.97",
    of: Annotated[
        str,
        typer.Option(
            "--of",
            metavar="peak|final",
            help="What a fraction refers to: the reference's peak or final accuracy in a session.",
        ),
    ] = "peak",
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="NAME",
            help="The method that others are compared with; by default warm_start.",
            autocompletion=completion.method_names,
        ),
    ] = None,
    as_json: Annotated[bool, json_option("all metrics")] = False,
) -> None:
    """Show how fast each method recovers after a transition, what it gains and what it costs."""
    from rich.console import Console

    from ebbflow.analysis.metrics import parse_of, parse_target
    from ebbflow.analysis.run_metrics import run_metrics
    from ebbflow.plugins import warn_of_lacking
    from ebbflow.report.metric_tables import metric_tables, metrics_record
    from ebbflow.runs.configuration import read_config

    point = parse_of(of)
    texts = dict.fromkeys(part.strip() for part in target.split(","))
    targets = [parse_target(text, point) for text in texts]
    warn_of_lacking(read_config(folder).plugins)
    measured = run_metrics(folder, targets, reference)
    tell_state(folder)
    if as_json:
        print_json(metrics_record(measured))
        return
    console = Console()
    if not measured.seeds:
        first = measured.pilot + 3
        typer.echo(f"no transition is over yet: the first with a choice is session {first}")
    for table in metric_tables(measured):
        console.print(table)
    if not measured.accounts:
        typer.echo("no costs: the run was made with a version that did not count them")
