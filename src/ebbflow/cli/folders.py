"""verify and repair: whether a run folder is intact, and what can be done if it is not."""

from __future__ import annotations

import json
from typing import Any

import typer

from ebbflow.cli.options import AsJson, RunPath
from ebbflow.core.names import printable

app = typer.Typer()

DAMAGED = 1
"""The exit code if something is wrong with a run folder."""


@app.command()
def verify(folder: RunPath, as_json: AsJson = False) -> None:
    """Check whether every file of a run is intact."""
    from ebbflow.runs.verify import verify as findings_of

    findings = findings_of(folder)
    if as_json:
        _print_json({"intact": not findings, "findings": [f._asdict() for f in findings]})
    else:
        for finding in findings:
            typer.echo(f"{finding.state:8} {printable(finding.path)}: {printable(finding.text)}")
        if findings:
            typer.echo(f"mend it by `ebbflow repair {printable(str(folder))}`")
        else:
            typer.echo("every file is intact")
    if findings:
        raise typer.Exit(DAMAGED)


@app.command()
def repair(folder: RunPath, as_json: AsJson = False) -> None:
    """Mend a damaged run, as far as that is possible."""
    from ebbflow.runs.repair import repair as repairs_of

    repairs = repairs_of(folder)
    left = [repair for repair in repairs if not repair.done]
    if as_json:
        _print_json({"repaired": not left, "repairs": [r._asdict() for r in repairs]})
    else:
        for repair in repairs:
            state = "repaired" if repair.done else "left"
            typer.echo(f"{state:8} {printable(repair.path)}: {printable(repair.text)}")
        if not repairs:
            typer.echo("every file is intact")
    if left:
        raise typer.Exit(DAMAGED)


def _print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(content, indent=1))
