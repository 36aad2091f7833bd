"""presets: list them, and show one."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List the presets, or show one.", invoke_without_command=True)


@app.callback()
def presets(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every name, one per line.")
    ] = False,
) -> None:
    """List the presets, or show one."""
    if context.invoked_subcommand is not None:
        return
    from ebbflow.config.paper_rows import patterns, rows
    from ebbflow.config.presets import preset_names, preset_text

    if everything:
        typer.echo("\n".join(preset_names()))
        return
    for name in preset_names():
        if name not in rows():
            typer.echo(f"{name:14} {preset_text(name).splitlines()[0].removeprefix('# ')}")
    typer.echo(f"\n{len(rows())} rows of the paper's tables; add authors-code or paper-text:")
    for title, shortened in patterns():
        typer.echo("\n".join(["", title, *(f"  {line}" for line in shortened)]))


@app.command("show")
def presets_show(name: Annotated[str, typer.Argument(help="A preset's name.")]) -> None:
    """Print a preset as TOML."""
    from ebbflow.config.presets import preset_text

    typer.echo(preset_text(name), nl=False)
