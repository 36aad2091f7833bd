"""run, compare, resume and paper-cli: the commands that compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.cli.options import (
    AlgorithmNames,
    Alpha,
    AsJson,
    ConfigFile,
    DatasetName,
    Devices,
    MethodNames,
    Out,
    Overlap,
    PartitionName,
    PilotSessions,
    Presets,
    Rounds,
    RunPath,
    SeedList,
    Sessions,
    Settings,
    Windows,
    configure,
)
from ebbflow.core.errors import EbbflowError
from ebbflow.paper.flags import with_flags

if TYPE_CHECKING:
    from ebbflow.config import Config
    from ebbflow.records import Records

app = typer.Typer()


def _experiment(name: str, text: str, base: dict[str, Any]) -> None:
    """Register a command that runs an experiment; ``base`` lies below all that the user says."""

    @app.command(name, help=text)
    def command(
        config: ConfigFile = None,
        preset: Presets = None,
        settings: Settings = None,
        dataset: DatasetName = None,
        algorithm: AlgorithmNames = None,
        partition: PartitionName = None,
        overlap: Overlap = None,
        alpha: Alpha = None,
        devices: Devices = None,
        sessions: Sessions = None,
        pilot: PilotSessions = None,
        rounds: Rounds = None,
        seeds: SeedList = None,
        methods: MethodNames = None,
        window: Windows = None,
        out: Out = None,
        json: AsJson = False,
    ) -> None:
        given = {
            "dataset": dataset,
            "algorithm": algorithm,
            "partition": partition,
            "overlap": overlap,
            "alpha": alpha,
            "devices": devices,
            "sessions": sessions,
            "pilot": pilot,
            "rounds": rounds,
            "seeds": seeds,
            "methods": methods,
            "window": window,
        }
        resolved = configure(base, config, preset or [], given, settings or [])
        _launch(resolved, out or _default_folder(resolved), json)


_experiment(
    "run",
    "Run one method: warm_start, unless --methods says otherwise.",
    {"methods": ["warm_start"]},
)
_experiment(
    "compare", "Compare ways to start a session, side by side over the same mini-batches.", {}
)


@app.command("paper-cli")
@with_flags
def paper_cli(
    true_scaffold: Annotated[
        bool, typer.Option("--true-scaffold", help="SCAFFOLD, not what the authors' code runs.")
    ] = False,
    use_gpu: Annotated[bool, typer.Option("--use-gpu", help="Heed --gpu_index.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Run it, as compare does.")] = False,
    out: Out = None,
    json: AsJson = False,
    **flags: Any,
) -> None:
    """Take the flags of the paper's own command, and print the same as TOML or run it."""
    from ebbflow.layers import Layers
    from ebbflow.paper.command_line import BEHAVIOUR, translate

    if not run and (json or out is not None):
        raise EbbflowError("--out and --json say what becomes of a run: add --run")
    found = translate(flags, true_scaffold=true_scaffold, use_gpu=use_gpu)
    layers = Layers()
    layers.add_preset(BEHAVIOUR)
    for key, value in found.settings.items():
        layers.add_key(key, value, found.places.get(key, "paper-cli"))
    resolved = layers.config()
    if not run:
        typer.echo(found.toml(), nl=False)
        return
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    _launch(resolved, out or _default_folder(resolved), json)


@app.command()
def resume(folder: RunPath, json: AsJson = False) -> None:
    """Go on with a run that was stopped, from its last checkpoint."""
    from ebbflow import experiment
    from ebbflow.core.memory import use_one_arena
    from ebbflow.report.progress import progress_display

    use_one_arena()
    config = experiment.read_config(folder)
    if warning := experiment.other_instructions(folder):
        typer.echo(f"warning: {warning}", err=True)
    with _told_how_to_go_on(folder), closing(progress_display(config)) as display:
        found = experiment.resume(folder, watchers=[display])
    _show(found, config, json)


def _default_folder(config: Config) -> Path:
    stem = f"{Path(config.dataset).stem}-{'-'.join(config.algorithm)}"
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{stem}"


def _launch(config: Config, out: Path, as_json: bool) -> None:
    from ebbflow.records import claim_folder

    # Before torch is imported, so that a run that is killed in its first second can be resumed.
    claim_folder(out, config.model_dump())
    from ebbflow import experiment
    from ebbflow.core.memory import use_one_arena
    from ebbflow.report.progress import progress_display

    use_one_arena()
    with _told_how_to_go_on(out), closing(progress_display(config)) as display:
        found = experiment.run(config, out, watchers=[display], claimed=True)
    _show(found, config, as_json)


@contextmanager
def _told_how_to_go_on(folder: Path) -> Iterator[None]:
    """Let a user who stops a run know what becomes of it."""
    try:
        yield
    except KeyboardInterrupt:
        if folder.exists():
            typer.echo(f"stopped: go on with `ebbflow resume {folder}`", err=True)
        else:
            typer.echo("stopped before anything was computed", err=True)
        raise typer.Exit(130) from None


def _show(found: Records, config: Config, as_json: bool) -> None:
    """Print the table (or the summary as JSON), draw the picture, and say where everything is."""
    from rich.console import Console

    from ebbflow.report.plots import accuracy_picture
    from ebbflow.report.tables import comparison_tables

    folder = found.folder or Path()
    if as_json:
        typer.echo((folder / "summary.json").read_text(encoding="utf-8"), nl=False)
        return
    console = Console()
    tables = comparison_tables(found.rows, config.algorithm, config.methods)
    for table in tables:
        console.print(table)
    if not tables:
        first = config.pilot.sessions + 3
        typer.echo(f"no transition yet: the first with a choice is session {first}")
    longest = max(r.round for r in found.rounds)
    for window in config.window:
        if window > longest:
            typer.echo(f"note: a session has {longest} rounds, fewer than the window {window}")
    title = f"{Path(config.dataset).stem}, accuracy on the labels present"
    try:
        accuracy_picture(found.rounds, folder / "accuracy.png", title)
        typer.echo(f"picture  {folder / 'accuracy.png'}")
    except EbbflowError as missing:
        typer.echo(str(missing))
    typer.echo(f"records  {folder}")
