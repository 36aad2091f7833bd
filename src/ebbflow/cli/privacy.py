"""privacy: what a run has spent of its devices' privacy."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli.options import RunPath
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.states import tell_state
from ebbflow.cli.values import FLOAT, number

app = typer.Typer()


@app.command(
    short_help="Show the privacy that a run has spent.",
    epilog=examples(
        "ebbflow privacy runs/private",
        "ebbflow privacy runs/private --delta 1e-6",
        "ebbflow privacy runs/private --json",
    ),
)
def privacy(
    folder: RunPath,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta",
            metavar=FLOAT,
            parser=number("--delta", 1e-5),
            help="The probability of a larger loss; by default privacy.delta of the run.",
        ),
    ] = None,
    as_json: Annotated[bool, json_option("what was spent")] = False,
) -> None:
    """Show how much every method of a run with [privacy] may have revealed of a device: epsilon."""
    from ebbflow.analysis.privacy import privacy_spent
    from ebbflow.core.errors import EbbflowError

    if delta is not None and not 0 < delta < 1:
        raise EbbflowError(f"--delta {delta:g} is no probability: give one above 0 and below 1")
    spent, chosen = privacy_spent(folder, delta)
    tell_state(folder)
    if as_json:
        methods = [{**each._asdict(), "epsilon": each.most} for each in spent]
        print_json({"delta": chosen, "methods": methods})
        return
    from rich.console import Console

    from ebbflow.report.privacy_tables import privacy_table

    Console().print(privacy_table(spent, chosen))
