"""history: the past sessions that a run keeps."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import RunPath, help_if_alone
from ebbflow.core.errors import EbbflowError

app = typer.Typer(help="Inspect a run's history.", invoke_without_command=True)
app.callback()(help_if_alone)


@app.command("ls")
def history_ls(folder: RunPath) -> None:
    """List the past sessions that a run keeps, and check their files."""
    from rich.console import Console

    from ebbflow.report.history_tables import history_table
    from ebbflow.runs.checkpoint import check_complete
    from ebbflow.runs.records import check_run

    check_run(folder)
    check_complete(folder)
    Console().print(history_table(folder))


@app.command("show")
def history_show(
    folder: RunPath,
    session: Annotated[str, typer.Argument(help="A session's number.")],
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    seed: Annotated[str | None, typer.Option(help="Only this seed.")] = None,
) -> None:
    """Show one past session: what it started from, with which weights, and its file."""
    from ebbflow.report.history_tables import session_report
    from ebbflow.runs.checkpoint import check_complete
    from ebbflow.runs.records import check_run

    number = _whole(session, "SESSION")
    only = None if seed is None else _whole(seed, "--seed")
    check_run(folder)
    check_complete(folder)
    for line in session_report(folder, number, method, only):
        typer.echo(line)


def _whole(text: str, place: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise EbbflowError(f"{place} {text!r} is not a whole number: write one, as in 5") from None
