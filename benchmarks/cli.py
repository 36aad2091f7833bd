"""bench: how long the work takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbflow.core.errors import EbbflowError

app = typer.Typer()


@app.command("bench")
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="W1, W2, W3, W4, texts, cells, scaling, profile; by default all of them.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Of which the median counts.")
    ] = 7,
    peers: Annotated[
        Path | None,
        typer.Option("--peers", metavar="DIR", help="Environments of benchmarks/peers/install.py."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PAGE", help="A page to write, with numbers and a picture."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")
    ] = False,
) -> None:
    """Time the works, the paper's cells and the scaling curves, after checking equal results."""
    from benchmarks.run import chosen, measure

    wanted = chosen(names or [])
    from benchmarks.page import suite_text, write_page
    from benchmarks.results import Results

    if out is not None and not out.parent.is_dir():
        raise EbbflowError(f"--out {out}: there is no folder {out.parent}; make it first")
    if peers is not None:
        from benchmarks.peer_runs import known_peers

        known_peers(peers)
    found, missing = [], []
    for name in wanted:
        try:
            suite = measure(name, repeats, peers)
        except EbbflowError as error:  # the others are measured all the same
            missing.append(f"{name} is not measured: {error}")
            continue
        found.append(suite)
        if out is not None:
            write_page(out, [suite])
        if not json:
            typer.echo(suite_text(suite))
    if json:
        typer.echo(Results().updated(found).model_dump_json(indent=1))
    elif out is not None and found:
        typer.echo(f"page     {out}")
    if missing:
        raise EbbflowError("; ".join(missing))
