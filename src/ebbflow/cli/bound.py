"""bound: a run compared with the paper's Theorem 1."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from ebbflow.cli.options import Plugins, RunPath, SeedList
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.states import tell_state
from ebbflow.cli.values import FLOAT, INTEGER, number, seeds_of, whole
from ebbflow.core.errors import EbbflowError

app = typer.Typer()


@app.command(
    "bound",
    short_help="Print a run's gradient norms next to Theorem 1's bounds.",
    epilog=examples(
        "ebbflow bound runs/demo",
        "ebbflow bound runs/demo --seeds 100 --iterations 50",
        "ebbflow bound runs/demo --json",
    ),
)
def bound(
    folder: RunPath,
    seeds: SeedList = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations",
            metavar=INTEGER,
            parser=whole("--iterations", 300, least=1),
            help="Iterations of the full-batch search for w*.",
        ),
    ] = 300,
    zeta_1: Annotated[
        float,
        typer.Option(
            "--zeta1",
            metavar=FLOAT,
            parser=number("--zeta1", 1),
            help="The dissimilarity's zeta_1, at least 1.",
        ),
    ] = 1,
    plugin: Plugins = None,
    as_json: Annotated[bool, json_option("everything")] = False,
) -> None:
    """Repeat a run and print its squared gradient norms next to the bounds of Theorem 1."""
    from ebbflow.runs.records import check_run

    only = [] if seeds is None else list(seeds_of(seeds))
    check_run(folder)
    from ebbflow.analysis.run_bounds import chosen, examine
    from ebbflow.plugins import load_recorded
    from ebbflow.report.progress import progress_display

    config = chosen(folder, only)
    load_recorded(config.plugins, plugin or [])
    tell_state(folder)
    with closing(progress_display(config)) as display:
        findings = examine(
            folder, seeds=only, iterations=iterations, zeta_1=zeta_1, callbacks=[display]
        )
    if as_json:
        print_json(findings.as_json())
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
