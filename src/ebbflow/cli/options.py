"""Options shared by several commands, and the configuration built from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.cli import completion
from ebbflow.cli.printing import json_option
from ebbflow.cli.values import (
    FLOAT,
    INTEGER,
    INTEGERS,
    NAMES,
    names,
    number,
    whole,
    wholes,
)
from ebbflow.core.seed_lists import seeds

if TYPE_CHECKING:
    from ebbflow.config.merge import Layers
    from ebbflow.config.resolved import Config

ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="A TOML file with the configuration."),
]
Presets = Annotated[
    list[str] | None,
    typer.Option(
        "--preset",
        metavar=NAMES,
        help="Presets by name; the last wins.",
        autocompletion=completion.preset_names,
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key; may be repeated.")
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME|PATH",
        help="A name from `ebbflow data ls`, or a file or folder of yours.",
        autocompletion=completion.dataset_names,
    ),
]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", help="The column of a table that holds the labels."),
]
DeviceColumn = Annotated[
    str | None,
    typer.Option(
        "--device-column",
        metavar="COLUMN",
        help="The column of a table that says whose a sample is.",
    ),
]
TestSplit = Annotated[
    float | None,
    typer.Option(
        "--test-split",
        metavar=FLOAT,
        parser=number("--test-split", 0.2),
        help="Share of samples to set aside for testing.",
    ),
]
AlgorithmNames = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        metavar=NAMES,
        help="FL algorithms.",
        autocompletion=completion.algorithm_names,
    ),
]
PartitionName = Annotated[
    str | None, typer.Option("--partition", metavar="NAME", help="Who holds which samples.")
]
Overlap = Annotated[
    float | None,
    typer.Option(
        "--overlap",
        metavar=FLOAT,
        parser=number("--overlap", 0.2),
        help="Fraction of labels in common, 0 to 1.",
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        "--alpha",
        metavar=FLOAT,
        parser=number("--alpha", 0.3),
        help="Concentration of the Dirichlet draws.",
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        metavar=INTEGER,
        parser=whole("--devices", 20, hint="; what to train on is --set device=cuda"),
        help="Devices per session; the total, unless Dirichlet.",
    ),
]
Sessions = Annotated[
    int | None,
    typer.Option(
        "--sessions", metavar=INTEGER, parser=whole("--sessions", 7), help="Number of sessions S."
    ),
]
PilotSessions = Annotated[
    int | None,
    typer.Option(
        "--pilot", metavar=INTEGER, parser=whole("--pilot", 1), help="Number of pilot sessions P."
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds", metavar=INTEGER, parser=whole("--rounds", 50), help="Rounds per session T."
    ),
]
SeedList = Annotated[
    str | None,
    typer.Option("--seeds", metavar=INTEGERS, help="Seeds and ranges of seeds, as in 100,1-3."),
]
MethodNames = Annotated[
    str | None,
    typer.Option(
        "--methods",
        metavar=NAMES,
        help="Ways to start a session.",
        autocompletion=completion.method_names,
    ),
]
Windows = Annotated[
    str | None,
    typer.Option("--window", metavar=INTEGERS, help="First rounds to average over."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The run folder; by default under runs/."),
]
AsJson = Annotated[bool, json_option("the summary")]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only the run folder's path, and warnings and errors."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what the run would take; run nothing, write nothing."),
]
RunPath = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A run folder.", autocompletion=completion.run_folders),
]

OtherEngine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="KIND",
        help="Go on with another engine that gives the same bits: vectorised or ray.",
    ),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file that registers algorithms or starts; may be repeated.",
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar=NAMES,
        help="Log the run for tensorboard, wandb, mlflow or csv, too.",
        autocompletion=completion.tracker_names,
    ),
]

SHORTCUTS = {
    "dataset": DatasetName,
    "label": Label,
    "device_column": DeviceColumn,
    "test_split": TestSplit,
    "algorithm": AlgorithmNames,
    "partition": PartitionName,
    "overlap": Overlap,
    "alpha": Alpha,
    "devices": Devices,
    "sessions": Sessions,
    "pilot": PilotSessions,
    "rounds": Rounds,
    "seeds": SeedList,
    "methods": MethodNames,
    "window": Windows,
}
"""The options for common keys, in the order of the help."""
Shortcuts = dict[str, Any]
"""What was given for each of them, or None."""

READERS: dict[str, Callable[[str], Any]] = {
    "algorithm": names,
    "methods": names,
    "seeds": seeds,
    "window": lambda text: wholes(text, "--window", "5,10"),
}
"""How shortcuts that hold lists are read; the others are what they should be already."""


def takes_shortcuts(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for common keys, in the place of its argument ``shortcuts``."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        if each.name == "shortcuts":
            parameters += [
                each.replace(name=name, default=None, annotation=option)
                for name, option in SHORTCUTS.items()
            ]
        else:
            parameters.append(each)

    @wraps(command)
    def with_options(**given: Any) -> None:
        shortcuts = {name: given.pop(name) for name in SHORTCUTS}
        command(shortcuts=shortcuts, **given)

    with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters
    )
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


def configure(
    base: dict[str, Any],
    file: Path | None,
    presets: list[str],
    shortcuts: dict[str, Any],
    settings: list[str],
    plugins: list[Path] | None = None,
) -> Config:
    """Return the configuration from a file, presets, shortcuts and settings; later ones win.

    ``plugins`` are those named by --plugin. A command without that option only looks: of the
    plugins in the configuration it loads those that the user has run before.
    """
    from ebbflow.config.merge import Layers
    from ebbflow.plugins import load_configured, load_trusted

    layers = Layers()
    layers.add(base, "default")
    if file is not None:
        layers.add_file(file)
    add_options(layers, presets, shortcuts, settings)
    if plugins is None:
        load_trusted(layers.plugins())
    else:
        load_configured(layers, plugins)
    config = layers.config()
    for note in layers.notes:
        typer.echo(f"note: {note}", err=True)
    return config


def add_options(
    layers: Layers, presets: list[str], shortcuts: dict[str, Any], settings: list[str]
) -> None:
    """Put presets, shortcuts and settings on top of what is there, in this order."""
    from ebbflow.config.schema import SHORTCUTS as KEYS

    for name in preset_list(presets):
        layers.add_preset(name)
    for name, given in shortcuts.items():
        if given is not None:
            value = READERS[name](given) if name in READERS else given
            layers.add_key(KEYS[name], value, f"--{name.replace('_', '-')}")
    for setting in settings:
        layers.add_setting(setting)


def help_if_alone(context: typer.Context) -> None:
    """Print a group's help if none of its commands was named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def preset_list(given: Sequence[str] | None) -> list[str]:
    """Return the presets that options name, each of which may be a list.

    >>> preset_list(["demo", "authors-code,per-device"])
    ['demo', 'authors-code', 'per-device']
    """
    return [name for text in given or () for name in names(text)]
