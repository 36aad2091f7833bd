"""data: list, download, verify and show data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ebbflow.cli.options import (
    Alpha,
    ConfigFile,
    DatasetName,
    Devices,
    Overlap,
    PartitionName,
    Presets,
    Sessions,
    Settings,
    configure,
    help_if_alone,
)
from ebbflow.core.errors import EbbflowError

app = typer.Typer(help="Download and inspect data sets.", invoke_without_command=True)
app.callback()(help_if_alone)


@app.command("ls")
def data_ls() -> None:
    """List the known data sets and where they are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ebbflow.data.download import SOURCES, find

    table = Table("name", "train", "test", "classes", "licence", "where")
    for name, source in SOURCES.items():
        folder = find(source)
        where = "in the package" if source.bundled else str(folder or f"ebbflow data get {name}")
        sizes = (f"{source.train:,}", f"{source.test:,}", str(source.classes))
        table.add_row(name, *sizes, source.licence, escape(where))
    Console().print(table)


@app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set's name.")],
    mirror: Annotated[
        str | None, typer.Option("--from", help="Another address that holds the same files.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="A folder other than the cache.")] = None,
) -> None:
    """Download a data set and check it."""
    from ebbflow.data.download import fetch

    folder = fetch(name, mirror=mirror, destination=to, progress=sys.stderr.isatty())
    typer.echo(f"{name} is in {folder}")


@app.command("verify")
def data_verify(
    name: Annotated[
        str | None, typer.Argument(help="A data set; by default all that are on this machine.")
    ] = None,
) -> None:
    """Check the files of a data set against their checksums."""
    from ebbflow.data.download import SOURCES, find, verify

    names = [name] if name else [known for known, source in SOURCES.items() if find(source)]
    incomplete = []
    for each in names:
        checks = verify(each)
        for check in checks:
            typer.echo(f"{check.status:14} {check.path}")
        if any(check.status != "ok" for check in checks):
            incomplete.append(each)
    if incomplete:
        raise EbbflowError(f"{incomplete[0]} is not intact: run `ebbflow data get {incomplete[0]}`")


@app.command("show")
def data_show(
    config: ConfigFile = None,
    preset: Presets = None,
    settings: Settings = None,
    dataset: DatasetName = None,
    partition: PartitionName = None,
    overlap: Overlap = None,
    alpha: Alpha = None,
    devices: Devices = None,
    sessions: Sessions = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="The seed; of a comma-separated list, the first."),
    ] = None,
    picture: Annotated[
        Path, typer.Option("--picture", metavar="FILE", help="The picture to draw.")
    ] = Path("data.png"),
    everything: Annotated[
        bool, typer.Option("--all", help="Print every device and every label.")
    ] = False,
) -> None:
    """Show who holds which samples in which session; nothing is trained."""
    shortcuts = {
        "dataset": dataset,
        "partition": partition,
        "overlap": overlap,
        "alpha": alpha,
        "devices": devices,
        "sessions": sessions,
        "seeds": seeds,
    }
    resolved = configure({}, config, preset or [], shortcuts, settings or [])
    from rich.console import Console

    from ebbflow.analysis.holdings import planned_holdings
    from ebbflow.report.partition_report import (
        check_picture,
        device_table,
        partition_picture,
        remark_lines,
        session_table,
    )

    check_picture(picture)
    holdings = planned_holdings(resolved)
    console = Console()
    console.print(session_table(holdings, everything))
    console.print(device_table(holdings, everything))
    for line in remark_lines(holdings):
        console.print(line, soft_wrap=True)
    try:
        partition_picture(holdings, picture)
        typer.echo(f"picture  {picture}")
    except EbbflowError as missing:
        typer.echo(str(missing))
