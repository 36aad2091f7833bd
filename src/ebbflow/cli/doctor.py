"""doctor: whether ebbflow can run here, how fast, and what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.core.names import printable

app = typer.Typer()

BROKEN = 1
"""The exit code if something that ebbflow needs is broken."""

_MARKS = {"ok": "ok", "missing": "--", "broken": "FAIL"}


@app.command(epilog=examples("ebbflow doctor", "ebbflow doctor --json"))
def doctor(as_json: Annotated[bool, json_option("everything")] = False) -> None:
    """Check the installation, the machine and the data."""
    from ebbflow.analysis.installation import check_installation

    checks = []
    for check in check_installation():
        checks.append(check)
        if not as_json:
            typer.echo(f"{_MARKS[check.state]:4}  {check.name:13} {printable(check.detail)}")
    healthy = all(check.state != "broken" for check in checks)
    if as_json:
        print_json({"healthy": healthy, "checks": [check._asdict() for check in checks]})
    elif not healthy:
        typer.echo("ebbflow cannot run as it should: the lines marked FAIL say why", err=True)
    if not healthy:
        raise typer.Exit(BROKEN)
