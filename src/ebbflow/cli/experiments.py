"""run, compare and resume: the commands that compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ebbflow.cli.options import (
    AsJson,
    ConfigFile,
    DryRun,
    OtherEngine,
    Out,
    Plugins,
    Presets,
    Quiet,
    RunPath,
    Settings,
    Shortcuts,
    Trackers,
    configure,
    takes_shortcuts,
)
from ebbflow.cli.printing import examples, print_json
from ebbflow.cli.running import seconds_so_far
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.cli.stopping import Stopping
    from ebbflow.config.resolved import Config
    from ebbflow.report.progress import ProgressDisplay
    from ebbflow.runs.records import RunRecords
    from ebbflow.simulation.callbacks import Callback

app = typer.Typer()


def _experiment(name: str, text: str, base: dict[str, Any], epilog: str) -> None:
    """Register a command that runs an experiment; ``base`` is its lowest configuration layer."""

    @app.command(name, help=text, epilog=epilog)
    @takes_shortcuts
    def command(
        *,
        config: ConfigFile = None,
        preset: Presets = None,
        settings: Settings = None,
        shortcuts: Shortcuts,
        plugin: Plugins = None,
        out: Out = None,
        log: Trackers = None,
        as_json: AsJson = False,
        quiet: Quiet = False,
        dry_run: DryRun = False,
    ) -> None:
        resolved = configure(base, config, preset or [], shortcuts, settings or [], plugin or [])
        folder = out or default_folder(resolved)
        trackers = trackers_of(log)
        if dry_run:
            foretell(resolved, folder, as_json, quiet)
        else:
            from ebbflow.plugins import trust_recorded

            trust_recorded(resolved.plugins)
            launch(resolved, folder, as_json, quiet, trackers)


_experiment(
    "run",
    "Run one method: learned, or the one named by --methods.",
    {"methods": ["auto"]},
    examples(
        "ebbflow run --dataset digits --seeds 1 --out runs/first",
        "ebbflow run --methods warm_start --algorithm fedprox --overlap 0.2",
        "ebbflow run --preset demo --dry-run",
    ),
)
_experiment(
    "compare",
    "Compare ways to start a session on the same mini-batches.",
    {},
    examples(
        "ebbflow compare --preset demo",
        "ebbflow compare --methods learned,previous --seeds 1-5 --out runs/mine",
        "ebbflow compare --set partition.kind=distinct --devices 10 --dry-run",
    ),
)


@app.command(
    epilog=examples(
        "ebbflow resume runs/mine",
        "ebbflow resume runs/mine --quiet",
        "ebbflow resume runs/mine --engine ray",
    ),
)
def resume(
    folder: RunPath,
    engine: OtherEngine = None,
    plugin: Plugins = None,
    log: Trackers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Resume a run from its last checkpoint."""
    from ebbflow.cli.run_log import RunLog
    from ebbflow.config.schema import engine_kind
    from ebbflow.runs.records import SUMMARY

    kind = engine_kind(engine, "--engine")
    trackers, run_log = trackers_of(log), RunLog(folder)
    with stopping(folder, run_log.leave) as signals, run_log.listening(signals):
        from ebbflow import experiment
        from ebbflow.core.malloc import use_one_arena
        from ebbflow.plugins import load_recorded
        from ebbflow.runs.configuration import read_config
        from ebbflow.runs.environment import other_instructions

        use_one_arena()
        config = read_config(folder)
        load_recorded(config.plugins, plugin or [])
        if warning := other_instructions(folder):
            typer.echo(f"warning: {warning}", err=True)
            run_log.warn(warning)
        # A finished run is only read: nothing happens that is worth a line.
        logs = [] if (folder / SUMMARY).exists() else [run_log]
        with closing(display_of(config, quiet)) as display:
            outcome = experiment.resume(
                folder,
                callbacks=[display, *logs, *trackers, signals],
                stop=signals.requested,
                engine=kind,
            )
        show(outcome, config, as_json, quiet)


def default_folder(config: Config) -> Path:
    """Return the run folder to use without --out."""
    stem = f"{Path(config.dataset).stem}-{'-'.join(config.algorithm)}"
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{stem}"


def foretell(config: Config, out: Path, as_json: bool, quiet: bool) -> None:
    """Print what a run would take, and fail as it would if that is more than there is."""
    from ebbflow import experiment
    from ebbflow.report.estimate_table import estimate_record, estimate_table
    from ebbflow.simulation.ceilings import available_memory, refuse_too_large, room_on_disk

    started = seconds_so_far()
    planned, seconds = experiment.dry_run(config, out)
    # A run has to start as well, and to draw its picture, which takes about as long.
    shown = planned, seconds + 2 * started, available_memory(), room_on_disk(out)
    if as_json:
        print_json(estimate_record(*shown))
    elif not quiet:
        from rich.console import Console

        Console().print(estimate_table(*shown))
    refuse_too_large(planned, out)


def launch(
    config: Config,
    out: Path,
    as_json: bool = False,
    quiet: bool = False,
    trackers: Sequence[Callback] = (),
) -> None:
    """Run an experiment in a new folder and show its outcome."""
    from ebbflow.cli.claiming import NewFolder
    from ebbflow.cli.run_log import RunLog

    made, log = NewFolder(out), RunLog(out)

    def leave() -> None:
        log.leave()
        made.take_back(interrupted=True)

    with stopping(out, leave) as signals, log.listening(signals), made:
        # Before torch is imported, so that a run killed in its first second can be resumed.
        made.claim(config)
        from ebbflow import experiment
        from ebbflow.core.malloc import use_one_arena

        use_one_arena()
        with closing(display_of(config, quiet)) as display:
            outcome = experiment.run(
                config,
                out,
                callbacks=[display, log, *trackers, signals],
                claimed=True,
                stop=signals.requested,
            )
        show(outcome, config, as_json, quiet)


def trackers_of(texts: list[str] | None) -> list[Callback]:
    """Return the trackers that --log names, after checking that their libraries are there."""
    if not texts:
        return []
    from ebbflow.trackers import named_trackers

    return [*named_trackers(texts, "--log")]


def display_of(config: Config, quiet: bool) -> ProgressDisplay:
    """Return what shows how a run goes on; with --quiet, warnings only."""
    if quiet:
        from rich.console import Console

        from ebbflow.cli.quiet import WarningDisplay

        return WarningDisplay(config, Console(stderr=True))
    from ebbflow.report.progress import progress_display

    return progress_display(config)


@contextmanager
def stopping(folder: Path, leaving: Callable[[], None] = lambda: None) -> Iterator[Stopping]:
    """Handle signals, and tell a user who stops a run how to resume it."""
    from ebbflow.cli.stopping import Stopping
    from ebbflow.core.errors import RunStoppedError

    with Stopping(folder, leaving) as signals:
        try:
            yield signals
        except (KeyboardInterrupt, RunStoppedError):
            typer.echo(signals.hint(), err=True)
            raise typer.Exit(signals.code) from None


def show(outcome: RunRecords, config: Config, as_json: bool, quiet: bool = False) -> None:
    """Print the tables (or the summary as JSON), draw the picture, and say where the files are."""
    from ebbflow.runs.records import SUMMARY, read_json

    folder = outcome.folder or Path()
    if as_json:
        print_json(read_json(folder / SUMMARY))
        return
    if not quiet:
        _print_tables(outcome, config)
    text = _drawn(outcome, config, folder)
    typer.echo(folder if quiet else f"{text}\nrecords  {folder}")


def _print_tables(outcome: RunRecords, config: Config) -> None:
    from rich.console import Console

    from ebbflow.core.judging import judge_of
    from ebbflow.report.tables import comparison_tables, device_tables

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


def _drawn(outcome: RunRecords, config: Config, folder: Path) -> str:
    """Draw the picture of a run, and return where it is, or why there is none."""
    from ebbflow.analysis.views.run_view import RunView
    from ebbflow.report.plots import accuracy_picture

    path = folder / "accuracy.png"
    try:
        name = Path(config.dataset).stem
        accuracy_picture(RunView(name, config, outcome.rounds, outcome.events), path)
    except EbbflowError as missing:
        return str(missing)
    except OSError as error:  # a finished run may be read where nothing can be written
        return f"no picture: {path} cannot be written ({error.strerror})"
    return f"picture  {path}"
