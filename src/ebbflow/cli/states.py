"""Says of a run that is not finished how far it is, before a command shows what there is."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from ebbflow.core.names import printable


def tell_state(folder: Path) -> None:
    """Say on standard error if a run is still running, or was stopped and can be resumed."""
    from ebbflow.runs.state import run_state

    found, name = run_state(folder), printable(str(folder))
    if found.state == "running":
        typer.echo(
            f"{name} is still running, {found.place}: this is what there is so far", err=True
        )
    elif found.state == "stopped":
        command = f"`ebbflow resume {printable(shlex.quote(str(folder)))}`"
        typer.echo(f"{name} was stopped, {found.place}: {command} goes on with it", err=True)
