"""`python -m benchmarks`: times the workloads, the paper's cells and the scaling curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbflow.core.errors import EbbflowError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def benchmarks(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="W1 to W5, W1-AVX2, modules, texts, before, cells, perceptrons, scaling, "
            "histories, profile; all by default.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Repeats; the median counts.")
    ] = 7,
    peers: Annotated[
        Path | None,
        typer.Option("--peers", metavar="DIR", help="Environments of benchmarks/peers/install.py."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="REV",
            help="The commit that the benchmark before compares with; by default the last one "
            "before dense networks had closed forms.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="PAGE",
            help="Write a page, its numbers and a picture, and the speeds into comparison.md "
            "beside it.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")
    ] = False,
) -> None:
    """Time ebbflow on this machine, after checking that all contenders give the same results."""
    from benchmarks.run import chosen, measure

    wanted = chosen(names or [])
    from benchmarks.performance_page import suite_text, write_page
    from benchmarks.results import Results

    if out is not None and not out.parent.is_dir():
        raise EbbflowError(f"--out {out}: there is no folder {out.parent}; make it first")
    if peers is not None:
        from benchmarks.peer_runs import known_peers

        known_peers(peers)
    if base is not None:
        if "before" not in wanted:
            raise EbbflowError(
                f"--base {base} belongs to the benchmark before, which is not to be measured: "
                "name it as well"
            )
        from benchmarks.before import commit_of

        commit_of(base)
    suites, failures = [], []
    for name in wanted:
        options = {"base": base} if name == "before" and base is not None else {}
        try:
            suite = measure(name, repeats, peers, **options)
        except EbbflowError as error:  # the other suites are still measured
            failures.append(f"{name} is not measured: {error}")
            continue
        suites.append(suite)
        if out is not None:
            write_page(out, [suite])
        if not json:
            typer.echo(suite_text(suite))
    if json:
        typer.echo(Results().updated(suites).model_dump_json(indent=1))
    elif out is not None and suites:
        typer.echo(f"page     {out}")
    if failures:
        raise EbbflowError("; ".join(failures))
