"""The command line. Commands import what they need themselves, so that ``--help`` is fast."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli import (
    bound,
    costs,
    data,
    doctor,
    experiments,
    folders,
    history,
    metrics,
    new,
    presets,
    privacy,
    trace,
)
from ebbflow.cli.options import help_if_alone
from ebbflow.cli.running import run_app

app = typer.Typer(
    name="ebbflow",
    help="Federated learning when devices come and go.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: importing rich would take longer than everything else together.
    rich_markup_mode=None,
)
app.add_typer(experiments.app)
app.add_typer(metrics.app)
app.add_typer(new.app)
app.add_typer(presets.app, name="presets")
app.add_typer(data.app, name="data")
app.add_typer(trace.app, name="trace")
app.add_typer(history.app, name="history")
app.add_typer(folders.app)
app.add_typer(bound.app)
app.add_typer(costs.app)
app.add_typer(privacy.app)
app.add_typer(doctor.app)


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from ebbflow import __version__

        typer.echo(__version__)
        raise typer.Exit
    help_if_alone(context)


def main() -> None:
    """Run the command line."""
    run_app(app, "ebbflow")
