"""history: the past sessions that a run keeps."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import MethodNames, RunPath, SeedList, help_if_alone
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.states import tell_state
from ebbflow.cli.values import names, seeds_of, whole

app = typer.Typer(
    help="Inspect a run's history.",
    invoke_without_command=True,
    epilog=examples("ebbflow history ls runs/demo", "ebbflow history show runs/demo 5"),
)
app.callback()(help_if_alone)


@app.command(
    "ls", epilog=examples("ebbflow history ls runs/demo", "ebbflow history ls runs/demo --json")
)
def history_ls(
    folder: RunPath, as_json: Annotated[bool, json_option("the past sessions")] = False
) -> None:
    """List the past sessions that a run keeps, and check their files."""
    from ebbflow.report.history_tables import history_records, history_table
    from ebbflow.runs.checkpoint import check_complete
    from ebbflow.runs.records import check_run

    check_run(folder)
    check_complete(folder)
    if as_json:
        found = history_records(folder)
        tell_state(folder)
        print_json({"sessions": found})
        return
    from rich.console import Console

    table = history_table(folder)
    tell_state(folder)
    Console().print(table)


@app.command(
    "show",
    epilog=examples(
        "ebbflow history show runs/demo 5",
        "ebbflow history show runs/demo 5 --methods learned --seeds 100",
        "ebbflow history show runs/demo 5 --json",
    ),
)
def history_show(
    folder: RunPath,
    session: Annotated[
        int,
        typer.Argument(metavar="SESSION", parser=whole("SESSION", 5), help="A session's number."),
    ],
    methods: MethodNames = None,
    seeds: SeedList = None,
    as_json: Annotated[bool, json_option("the session")] = False,
) -> None:
    """Show one past session: what it started from, with which weights, and its file."""
    from ebbflow.report.history_tables import session_records, session_report
    from ebbflow.runs.checkpoint import check_complete
    from ebbflow.runs.records import check_run

    only = (
        [] if methods is None else names(methods),
        [] if seeds is None else seeds_of(seeds),
    )
    check_run(folder)
    check_complete(folder)
    if as_json:
        found = session_records(folder, session, *only)
        tell_state(folder)
        print_json({"sessions": found})
        return
    lines = list(session_report(folder, session, *only))
    tell_state(folder)
    for line in lines:
        typer.echo(line)
