"""presets: list them, and show one."""

from __future__ import annotations

from typing import Annotated

import typer

from ebbflow.cli import completion
from ebbflow.cli.printing import examples, json_option, print_json

app = typer.Typer(
    help="List the presets, or show one.",
    invoke_without_command=True,
    epilog=examples(
        "ebbflow presets",
        "ebbflow presets --all",
        "ebbflow presets show demo",
    ),
)


@app.callback()
def presets(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every name, one per line.")
    ] = False,
    as_json: Annotated[bool, json_option("all presets")] = False,
) -> None:
    """List the presets, or show one."""
    if context.invoked_subcommand is not None:
        return
    from ebbflow.config.paper_rows import patterns, rows
    from ebbflow.config.presets import preset_names

    files = {name: _about(name) for name in preset_names() if name not in rows()}
    if as_json:
        named = [{"name": name, "about": about} for name, about in files.items()]
        print_json({"presets": named, "rows": list(rows())})
        return
    if everything:
        typer.echo("\n".join(preset_names()))
        return
    for name, about in files.items():
        typer.echo(f"{name:14} {about}")
    typer.echo(f"\n{len(rows())} rows of the paper's tables; add authors-code or paper-text:")
    for title, shortened in patterns():
        typer.echo("\n".join(["", title, *(f"  {line}" for line in shortened)]))


def _about(name: str) -> str:
    """Return what a preset says about itself in its first line."""
    from ebbflow.config.presets import preset_text

    return preset_text(name).splitlines()[0].removeprefix("# ")


@app.command(
    "show",
    epilog=examples(
        "ebbflow presets show demo",
        "ebbflow presets show mnist-dirichlet-o0.0-a0.3-moon --json",
    ),
)
def presets_show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A preset's name.", autocompletion=completion.one_preset
        ),
    ],
    as_json: Annotated[bool, json_option("the preset")] = False,
) -> None:
    """Print a preset as TOML."""
    from ebbflow.config.presets import preset, preset_text

    if as_json:
        print_json({"name": name, "settings": preset(name)})
    else:
        typer.echo(preset_text(name), nl=False)
