"""The command line of the chaos runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def chaos(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="crashes, damage, disk, hostile, inputs, faults, attacks, poison, soak, "
            "steady, durability, peers.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to fill.")] = Path("docs/reliability.md"),
    part: Annotated[
        int, typer.Option(min=1, help="Do only every so-manieth trial; for a quick look.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(min=0, help="How long a long run is killed and resumed.")
    ] = 30.0,
    peers: Annotated[
        Path | None, typer.Option(help="The folder of `make peers`; without it, no peers.")
    ] = None,
) -> None:
    """Disturb runs in every way, count what is lost, and fill the tables of docs/reliability.md."""
    import tempfile

    import torch

    from benchmarks.chaos.page import SECTIONS, Extent, write_section
    from ebbflow.core.errors import unknown

    torch.set_num_threads(1)  # a forked process has no other threads
    every = [name for name in SECTIONS if name != "peers" or peers is not None]
    for name in names or every:
        if name not in SECTIONS:
            raise unknown(name, SECTIONS, "section", "the command")
        with tempfile.TemporaryDirectory() as scratch:
            write_section(name, out, Path(scratch), Extent(part, minutes, peers), typer.echo)
