"""bound: a run compared with the paper's Theorem 1."""

from __future__ import annotations

import json as encode
from contextlib import closing
from typing import Annotated

import typer

from ebbflow.cli.options import Plugins, RunPath
from ebbflow.core.errors import EbbflowError

app = typer.Typer()


@app.command("bound", short_help="Print a run's gradient norms next to Theorem 1's bounds.")
def bound(
    folder: RunPath,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", help="Only this seed; may be repeated.")
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=1, help="Iterations of the full-batch search for w*.")
    ] = 300,
    zeta_1: Annotated[
        float, typer.Option("--zeta1", help="The dissimilarity's zeta_1, at least 1.")
    ] = 1,
    plugin: Plugins = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON and nothing else.")
    ] = False,
) -> None:
    """Repeat a run and print its squared gradient norms next to the bounds of Theorem 1."""
    from ebbflow.runs.records import check_run

    check_run(folder)
    from ebbflow.analysis.run_bounds import chosen, examine
    from ebbflow.plugins import load_recorded
    from ebbflow.report.progress import progress_display

    config = chosen(folder, seed or [])
    load_recorded(config.plugins, plugin or [])
    with closing(progress_display(config)) as display:
        findings = examine(
            folder, seeds=seed or [], iterations=iterations, zeta_1=zeta_1, callbacks=[display]
        )
    if json:
        typer.echo(encode.dumps(findings.as_json(), indent=1))
        return
    from rich.console import Console

    from ebbflow.report.bound_tables import bound_picture, bound_tables

    console = Console()
    for table in bound_tables(findings):
        console.print(table)
    for note in findings.notes:
        typer.echo(f"note: {note}")
    try:
        bound_picture(findings, folder / "bound.png", folder.name)
        typer.echo(f"picture  {folder / 'bound.png'}")
    except EbbflowError as missing:
        typer.echo(str(missing))
