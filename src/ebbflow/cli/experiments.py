"""run, compare and resume: the commands that compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ebbflow.cli.options import (
    AlgorithmNames,
    Alpha,
    AsJson,
    ConfigFile,
    DatasetName,
    DeviceColumn,
    Devices,
    DryRun,
    Label,
    MethodNames,
    Out,
    Overlap,
    PartitionName,
    PilotSessions,
    Plugins,
    Presets,
    Rounds,
    RunPath,
    SeedList,
    Sessions,
    Settings,
    TestSplit,
    Windows,
    configure,
)
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.cli.stopping import Stopping
    from ebbflow.config.resolved import Config
    from ebbflow.runs.records import Records

app = typer.Typer()


def _experiment(name: str, text: str, base: dict[str, Any]) -> None:
    """Register a command that runs an experiment; ``base`` is its lowest configuration layer."""

    @app.command(name, help=text)
    def command(
        config: ConfigFile = None,
        preset: Presets = None,
        settings: Settings = None,
        dataset: DatasetName = None,
        label: Label = None,
        device_column: DeviceColumn = None,
        test_split: TestSplit = None,
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
        plugin: Plugins = None,
        out: Out = None,
        json: AsJson = False,
        dry_run: DryRun = False,
    ) -> None:
        shortcuts = {
            "dataset": dataset,
            "label": label,
            "device_column": device_column,
            "test_split": test_split,
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
        resolved = configure(base, config, preset or [], shortcuts, settings or [], plugin or [])
        folder = out or default_folder(resolved)
        if dry_run:
            foretell(resolved, folder)
        else:
            from ebbflow.plugins import trust_recorded

            trust_recorded(resolved.plugins)
            launch(resolved, folder, json)


_experiment(
    "run",
    "Run one method: learned, or the one named by --methods.",
    {"methods": ["auto"]},
)
_experiment("compare", "Compare ways to start a session on the same mini-batches.", {})


@app.command()
def resume(folder: RunPath, plugin: Plugins = None, json: AsJson = False) -> None:
    """Resume a run from its last checkpoint."""
    with _stopping(folder) as signals:
        from ebbflow import experiment
        from ebbflow.core.malloc import use_one_arena
        from ebbflow.plugins import load_recorded
        from ebbflow.report.progress import progress_display
        from ebbflow.runs.configuration import read_config
        from ebbflow.runs.environment import other_instructions

        use_one_arena()
        config = read_config(folder)
        load_recorded(config.plugins, plugin or [])
        if warning := other_instructions(folder):
            typer.echo(f"warning: {warning}", err=True)
        with closing(progress_display(config)) as display:
            outcome = experiment.resume(
                folder, callbacks=[display, signals], stop=signals.requested
            )
        _show(outcome, config, json)


def default_folder(config: Config) -> Path:
    """Return the run folder to use without --out."""
    stem = f"{Path(config.dataset).stem}-{'-'.join(config.algorithm)}"
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{stem}"


def foretell(config: Config, out: Path) -> None:
    """Print what a run would take, and fail as it would if that is more than there is."""
    from rich.console import Console

    from ebbflow import experiment
    from ebbflow.report.estimate_table import estimate_table
    from ebbflow.simulation.ceilings import available_memory, refuse_too_large, room_on_disk

    planned, seconds = experiment.dry_run(config, out)
    Console().print(estimate_table(planned, seconds, available_memory(), room_on_disk(out)))
    refuse_too_large(planned, out)


def launch(config: Config, out: Path, as_json: bool) -> None:
    """Run an experiment in a new folder and show its outcome."""
    from ebbflow.runs.records import claim_folder

    with _stopping(out) as signals:
        # Before torch is imported, so that a run killed in its first second can be resumed.
        claim_folder(out, config.model_dump())
        from ebbflow import experiment
        from ebbflow.core.malloc import use_one_arena
        from ebbflow.report.progress import progress_display

        use_one_arena()
        with closing(progress_display(config)) as display:
            outcome = experiment.run(
                config,
                out,
                callbacks=[display, signals],
                claimed=True,
                stop=signals.requested,
            )
        _show(outcome, config, as_json)


@contextmanager
def _stopping(folder: Path) -> Iterator[Stopping]:
    """Handle signals, and tell a user who stops a run how to resume it."""
    from ebbflow.cli.stopping import Stopping
    from ebbflow.core.errors import RunStoppedError

    with Stopping(folder) as signals:
        try:
            yield signals
        except (KeyboardInterrupt, RunStoppedError):
            typer.echo(signals.hint(), err=True)
            raise typer.Exit(signals.code) from None


def _show(outcome: Records, config: Config, as_json: bool) -> None:
    """Print the tables (or the summary as JSON), draw the picture, and say where the files are."""
    from rich.console import Console

    from ebbflow.core.judging import judge_of
    from ebbflow.report.plots import accuracy_picture
    from ebbflow.report.tables import comparison_tables, device_tables

    folder = outcome.folder or Path()
    if as_json:
        typer.echo((folder / "summary.json").read_text(encoding="utf-8"), nl=False)
        return
    console = Console()
    judge = judge_of(config.task, config.metrics)
    shown = outcome.rows, config.algorithm, config.methods, judge
    tables = comparison_tables(*shown)
    for table in (*tables, *device_tables(*shown)):
        console.print(table)
    if not tables:
        first = config.pilot.sessions + 3
        typer.echo(f"no transition yet: the first with a choice is session {first}")
    for event in outcome.events:
        if event["event"] == "ended":
            who = f"{event['algorithm']}, {event['method']}, seed {event['seed']}"
            typer.echo(f"note: {who} ended in session {event['session']}: {event['text']}")
    longest = max(r.round for r in outcome.rounds)
    for window in config.window:
        if window > longest:
            typer.echo(f"note: a session has {longest} rounds, fewer than the window {window}")
    measure = judge.title.removesuffix(" (%)")
    title = f"{Path(config.dataset).stem}, {measure} on the session's test samples"
    try:
        accuracy_picture(outcome.rounds, folder / "accuracy.png", title, judge)
        typer.echo(f"picture  {folder / 'accuracy.png'}")
    except EbbflowError as missing:
        typer.echo(str(missing))
    except OSError as error:  # a finished run may be read where nothing can be written
        typer.echo(f"no picture: {folder / 'accuracy.png'} cannot be written ({error.strerror})")
    typer.echo(f"records  {folder}")
