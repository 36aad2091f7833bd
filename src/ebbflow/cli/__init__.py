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
    export,
    extend,
    federate_runs,
    folders,
    history,
    metrics,
    new,
    plot,
    presets,
    privacy,
    report,
    sweep,
    trace,
    watch,
)
from ebbflow.cli.options import help_if_alone
from ebbflow.cli.printing import examples
from ebbflow.cli.running import run_app
from ebbflow.cli.spelling import take_both_spellings

EXIT_CODES = """\b
Exit codes:
  0    done
  1    something is wrong: found by verify, repair or doctor, or a bug
  2    a mistake that you can mend
  130  stopped by an interrupt (Ctrl-C)
  143  stopped by a request to end (SIGTERM)"""

app = typer.Typer(
    name="ebbflow",
    help="Federated learning when devices come and go.",
    invoke_without_command=True,
    epilog=examples(
        "ebbflow compare --preset demo",
        "ebbflow metrics runs/demo --target 0.95",
        "ebbflow compare --help",
    )
    + f"\n\n{EXIT_CODES}",
    # Commands take this over from the group that they are in.
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    # Plain help: importing rich would take longer than everything else together.
    rich_markup_mode=None,
)
app.add_typer(experiments.app)
app.add_typer(extend.app)
app.add_typer(sweep.app, name="sweep")
app.add_typer(metrics.app)
app.add_typer(report.app)
app.add_typer(export.app)
app.add_typer(plot.app)
app.add_typer(watch.app)
app.add_typer(new.app)
app.add_typer(presets.app, name="presets")
app.add_typer(data.app, name="data")
app.add_typer(trace.app, name="trace")
app.add_typer(history.app, name="history")
app.add_typer(federate_runs.app, name="federate")
app.add_typer(folders.app)
app.add_typer(bound.app)
app.add_typer(costs.app)
app.add_typer(privacy.app)
app.add_typer(doctor.app)
take_both_spellings(app)


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
