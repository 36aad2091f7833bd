"""verify and repair: whether a run folder is intact, and what can be done if it is not."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import RunPath
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.states import tell_state
from ebbflow.core.names import printable

app = typer.Typer()

DAMAGED = 1
"""The exit code if something is wrong with a run folder."""


@app.command(epilog=examples("ebbflow verify runs/demo", "ebbflow verify runs/demo --json"))
def verify(folder: RunPath, as_json: Annotated[bool, json_option("what is wrong")] = False) -> None:
    """Check whether every file of a run is intact."""
    from ebbflow.runs.verify import verify as findings_of

    findings = findings_of(folder)
    tell_state(folder)
    if as_json:
        print_json({"intact": not findings, "findings": [f._asdict() for f in findings]})
    else:
        for finding in findings:
            typer.echo(f"{finding.state:8} {printable(finding.path)}: {printable(finding.text)}")
        if findings:
            typer.echo(f"mend it by `ebbflow repair {printable(str(folder))}`")
        else:
            typer.echo("every file is intact")
    if findings:
        raise typer.Exit(DAMAGED)


@app.command(epilog=examples("ebbflow repair runs/demo", "ebbflow repair runs/demo --json"))
def repair(
    folder: RunPath, as_json: Annotated[bool, json_option("what was mended")] = False
) -> None:
    """Mend a damaged run, as far as that is possible."""
    from ebbflow.runs.repair import repair as repairs_of

    repairs = repairs_of(folder)
    left = [repair for repair in repairs if not repair.done]
    if as_json:
        print_json({"repaired": not left, "repairs": [r._asdict() for r in repairs]})
    else:
        for repair in repairs:
            state = "repaired" if repair.done else "left"
            typer.echo(f"{state:8} {printable(repair.path)}: {printable(repair.text)}")
        if not repairs:
            typer.echo("every file is intact")
    if left:
        raise typer.Exit(DAMAGED)
