"""The command line. Heavy imports wait inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ebbflow.cli import bench, bound, costs, data, experiments, history, metrics, paper, presets
from ebbflow.cli.options import help_if_alone
from ebbflow.core.errors import EbbflowError

app = typer.Typer(
    name="ebbflow",
    help="Federated learning when devices come and go.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(experiments.app)
app.add_typer(metrics.app)
app.add_typer(presets.app, name="presets")
app.add_typer(data.app, name="data")
app.add_typer(history.app, name="history")
app.add_typer(bench.app)
app.add_typer(bound.app)
app.add_typer(costs.app)
app.add_typer(paper.app, name="paper")


@app.command()
def doctor() -> None:
    """Check the installation, the machine and the data."""
    from ebbflow.report.doctor import examine

    healthy = True
    for check in examine():
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:12} {check.found}")
        healthy = healthy and check.ok
    if not healthy:
        raise EbbflowError("not all is well: see the lines marked FAIL for what to do")


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from ebbflow import __version__

        typer.echo(__version__)
        raise typer.Exit
    help_if_alone(context)


def main() -> None:
    """Run the command line: one sentence and exit code 2 for what the user can mend."""
    try:
        code = app(standalone_mode=False)
    except EbbflowError as error:
        _fail(str(error))
    except typer.TyperException as error:  # an unknown option, a missing argument
        sentence = getattr(error, "format_message", error.__str__)().rstrip(".")
        _fail(f"{sentence}; see `ebbflow --help`")
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("stopped", err=True)
        sys.exit(130)
    except OSError as error:
        _fail(
            f"{error.filename or 'a file'}: {error.strerror or error}; check the path and the disk"
        )
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str) -> None:
    typer.echo(f"ebbflow: {sentence}", err=True)
    sys.exit(2)
