"""privacy: what a run has spent of its devices' privacy."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import AsJson, RunPath

app = typer.Typer()


@app.command(short_help="Show the privacy that a run has spent.")
def privacy(
    folder: RunPath,
    delta: Annotated[
        float | None,
        typer.Option(help="The probability of a larger loss; by default privacy.delta of the run."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show how much every method of a run with [privacy] may have revealed of a device: epsilon."""
    from ebbflow.analysis.privacy import privacy_spent
    from ebbflow.core.errors import EbbflowError

    if delta is not None and not 0 < delta < 1:
        raise EbbflowError(f"--delta {delta:g} is no probability: give one above 0 and below 1")
    spent, chosen = privacy_spent(folder, delta)
    if json:
        from json import dumps

        shown = [{**each._asdict(), "epsilon": each.most, "delta": chosen} for each in spent]
        typer.echo(dumps(shown, indent=1))
        return
    from rich.console import Console

    from ebbflow.report.privacy_tables import privacy_table

    Console().print(privacy_table(spent, chosen))
