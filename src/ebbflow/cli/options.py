"""Options shared by several commands, and the configuration built from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.config.resolved import Config

ConfigFile = Annotated[Path | None, typer.Argument(help="A TOML file with the configuration.")]
Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", help="A preset's name; if repeated, the last wins."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key; may be repeated.")
]
DatasetName = Annotated[
    str | None,
    typer.Option("--dataset", help="A name from `ebbflow data ls`, or a file or folder of yours."),
]
Label = Annotated[
    str | None, typer.Option("--label", help="The column of a table that holds the labels.")
]
DeviceColumn = Annotated[
    str | None,
    typer.Option("--device-column", help="The column of a table that says whose a sample is."),
]
TestSplit = Annotated[
    str | None, typer.Option("--test-split", help="Share of samples to set aside for testing.")
]
AlgorithmNames = Annotated[
    str | None, typer.Option("--algorithm", help="FL algorithms, comma-separated.")
]
PartitionName = Annotated[str | None, typer.Option("--partition", help="Who holds which samples.")]
Overlap = Annotated[
    str | None, typer.Option("--overlap", help="Fraction of labels in common, 0 to 1.")
]
Alpha = Annotated[str | None, typer.Option("--alpha", help="Concentration of the Dirichlet draws.")]
Devices = Annotated[
    str | None,
    typer.Option("--devices", help="Devices per session; the total, unless Dirichlet."),
]
Sessions = Annotated[str | None, typer.Option("--sessions", help="Number of sessions S.")]
PilotSessions = Annotated[str | None, typer.Option("--pilot", help="Number of pilot sessions P.")]
Rounds = Annotated[str | None, typer.Option("--rounds", help="Rounds per session T.")]
SeedList = Annotated[str | None, typer.Option("--seeds", help="Seeds, comma-separated.")]
MethodNames = Annotated[
    str | None, typer.Option("--methods", help="Ways to start a session, comma-separated.")
]
Windows = Annotated[
    str | None, typer.Option("--window", help="First rounds to average over, comma-separated.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder; by default under runs/.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what the run would take; run nothing, write nothing."),
]
RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")]

Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file that registers algorithms or starts; may be repeated.",
    ),
]

LISTS = ("algorithm", "seeds", "methods", "window")
TEXTS = ("dataset", "label", "device_column", "algorithm", "partition", "methods")


def configure(
    base: dict[str, Any],
    file: Path | None,
    presets: list[str],
    shortcuts: dict[str, str | None],
    settings: list[str],
    plugins: list[Path] | None = None,
) -> Config:
    """Return the configuration from a file, presets, shortcuts and settings; later ones win.

    ``plugins`` are those named by --plugin. A command without that option only looks: of the
    plugins in the configuration it loads those that the user has run before.
    """
    from ebbflow.config.merge import Layers, literal
    from ebbflow.config.schema import SHORTCUTS
    from ebbflow.plugins import load_configured, load_trusted

    layers = Layers()
    layers.add(base, "default")
    if file is not None:
        layers.add_file(file)
    for name in presets:
        layers.add_preset(name)
    for name, text in shortcuts.items():
        if text is not None:
            parts = [part.strip() for part in text.split(",")]
            # A path or a name stays a string, even if it looks like a number.
            read = str if name in TEXTS else literal
            value = [read(part) for part in parts] if name in LISTS else read(text)
            layers.add_key(SHORTCUTS[name], value, f"--{name.replace('_', '-')}")
    for setting in settings:
        layers.add_setting(setting)
    if plugins is None:
        load_trusted(layers.plugins())
    else:
        load_configured(layers, plugins)
    config = layers.config()
    for note in layers.notes:
        typer.echo(f"note: {note}", err=True)
    return config


def help_if_alone(context: typer.Context) -> None:
    """Print a group's help if none of its commands was named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def seeds_of(text: str) -> tuple[int, ...]:
    """Return the seeds of a command that reads them itself, without a configuration."""
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0:
        raise EbbflowError(f"--seeds {text!r} are no seeds: write whole numbers, as in 100,200")
    if len(set(seeds)) < len(seeds):
        raise EbbflowError(f"--seeds {text!r} name one more than once: name each one once")
    return seeds
