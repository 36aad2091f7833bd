"""data: list, download, verify and show data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.cli import completion
from ebbflow.cli.options import (
    Alpha,
    ConfigFile,
    DatasetName,
    Devices,
    Overlap,
    PartitionName,
    Presets,
    SeedList,
    Sessions,
    Settings,
    configure,
    help_if_alone,
)
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.analysis.holdings import Holdings

app = typer.Typer(
    help="Download and inspect data sets.",
    invoke_without_command=True,
    epilog=examples("ebbflow data ls", "ebbflow data get mnist", "ebbflow data show"),
)
app.callback()(help_if_alone)


DAMAGED = 1
"""The exit code if a file of a data set is missing or damaged."""


@app.command("ls", epilog=examples("ebbflow data ls", "ebbflow data ls --json"))
def data_ls(as_json: Annotated[bool, json_option("the data sets")] = False) -> None:
    """List the known data sets and where they are."""
    from ebbflow.data.download import SOURCES, find

    if as_json:
        known = [
            {
                "name": name,
                "title": source.title,
                "train": source.train,
                "test": source.test,
                "classes": source.classes,
                "licence": source.licence,
                "packaged": source.bundled,
                "folder": find(source),
            }
            for name, source in SOURCES.items()
        ]
        print_json({"datasets": known})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("name", "train", "test", "classes", "licence", "where")
    for name, source in SOURCES.items():
        folder = find(source)
        where = "in the package" if source.bundled else str(folder or f"ebbflow data get {name}")
        sizes = (f"{source.train:,}", f"{source.test:,}", str(source.classes))
        table.add_row(name, *sizes, source.licence, escape(where))
    Console().print(table)


@app.command(
    "get",
    epilog=examples("ebbflow data get mnist", "ebbflow data get mnist --to downloads"),
)
def data_get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A data set's name.", autocompletion=completion.dataset_names
        ),
    ],
    mirror: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="ADDRESS", help="Another address that holds the same files."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="A folder other than the cache."),
    ] = None,
    as_json: Annotated[bool, json_option("where it is")] = False,
) -> None:
    """Download a data set and check it."""
    from ebbflow.data.download import fetch

    folder = fetch(name, mirror=mirror, destination=to, progress=sys.stderr.isatty())
    if as_json:
        print_json({"name": name, "folder": folder})
    else:
        typer.echo(f"{name} is in {folder}")


@app.command(
    "verify",
    epilog=examples("ebbflow data verify", "ebbflow data verify digits --json"),
)
def data_verify(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A data set; by default all that are on this machine.",
            autocompletion=completion.dataset_names,
        ),
    ] = None,
    as_json: Annotated[bool, json_option("the state of each file")] = False,
) -> None:
    """Check the files of a data set against their checksums."""
    from ebbflow.data.download import SOURCES, find, verify

    names = [name] if name else [known for known, source in SOURCES.items() if find(source)]
    incomplete, files = [], []
    for each in names:
        checks = verify(each)
        files += [{"name": each, "path": c.path, "status": c.status} for c in checks]
        if not as_json:
            for check in checks:
                typer.echo(f"{check.status:14} {check.path}")
        if any(check.status != "ok" for check in checks):
            incomplete.append(each)
    if as_json:
        print_json({"intact": not incomplete, "files": files})
    if incomplete:
        typer.echo(
            f"{incomplete[0]} is not intact: run `ebbflow data get {incomplete[0]}`", err=True
        )
        raise typer.Exit(DAMAGED)


@app.command(
    "show",
    epilog=examples(
        "ebbflow data show --partition distinct",
        "ebbflow data show --dataset digits --devices 10 --picture who.png",
        "ebbflow data show --preset demo --json",
    ),
)
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
    seeds: SeedList = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", metavar="FILE", help="The picture to draw; data.png, unless --json."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every device and every label.")
    ] = False,
    as_json: Annotated[bool, json_option("all of it")] = False,
) -> None:
    """Show who holds which samples in which session, under the first seed; nothing is trained."""
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
    from ebbflow.analysis.holdings import planned_holdings
    from ebbflow.report.partition_report import (
        check_picture,
        device_table,
        partition_picture,
        remark_lines,
        session_table,
    )

    if picture is None and not as_json:
        picture = Path("data.png")
    if picture is not None:
        check_picture(picture)
    holdings = planned_holdings(resolved)
    if as_json:
        print_json(_record(holdings))
        if picture is not None:
            partition_picture(holdings, picture)
        return
    from rich.console import Console

    console = Console()
    console.print(session_table(holdings, everything))
    console.print(device_table(holdings, everything))
    for line in remark_lines(holdings):
        console.print(line, soft_wrap=True)
    if picture is not None:
        try:
            partition_picture(holdings, picture)
            typer.echo(f"picture  {picture}")
        except EbbflowError as missing:
            typer.echo(str(missing))


def _record(holdings: Holdings) -> dict[str, Any]:
    """Return who holds what, as JSON may hold it."""
    labels = [holdings.label_name(label) for label in range(holdings.counts.shape[1])]
    devices = [
        {
            "device": device,
            "name": holdings.device_name(place),
            "sessions": [int(s) + 1 for s in holdings.present[place].nonzero()[0]],
            "samples": {
                label: int(count)
                for label, count in zip(labels, holdings.counts[place], strict=True)
                if count
            },
        }
        for place, device in enumerate(holdings.devices)
    ]
    return {
        "title": holdings.title,
        "labels": labels,
        "session_count": holdings.present.shape[1],
        "devices": devices,
        "remarks": holdings.remarks,
    }
