"""sweep: many runs from one plan, by as many workers as there are."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ebbflow.cli.default_command import DefaultCommandGroup
from ebbflow.cli.options import (
    Plugins,
    Presets,
    Settings,
    Shortcuts,
    add_options,
    help_if_alone,
    takes_shortcuts,
)
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.values import INTEGER, whole
from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable

if TYPE_CHECKING:
    from ebbflow.sweeps.folder import SweepFolder
    from ebbflow.sweeps.planning import Wish
    from ebbflow.sweeps.starting import PreparedSweep
    from ebbflow.sweeps.status import SweepStatus

FAILED = 1
"""The exit code if a cell has failed, or is left for another machine."""
CLUSTERS = ("auto", "local")
"""What --ray may name beside an address."""

app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Compute many runs from one plan, each once, by any number of workers.\n\n"
    "`ebbflow sweep SWEEP.toml` is `ebbflow sweep run SWEEP.toml`, whose help has the options.",
    short_help="Compute many runs from one plan.",
    invoke_without_command=True,
    epilog=examples(
        "ebbflow sweep sweep.toml --out runs/sweep --workers 4",
        "ebbflow sweep --grid algorithm=fedavg,scaffold --seeds 1-5 --out runs/sweep",
        "ebbflow sweep status runs/sweep --follow",
        "ebbflow sweep table runs/sweep",
        "ebbflow sweep work runs/sweep",
    ),
)
app.callback()(help_if_alone)

SweepPath = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a sweep.")]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar=INTEGER,
        parser=whole("--workers", 2, least=0),
        help="Processes that compute cells here; 0 only plans.",
    ),
]
Grace = Annotated[
    int,
    typer.Option(
        "--grace",
        metavar=INTEGER,
        parser=whole("--grace", 50, least=1),
        help="Seconds that a round has to finish when a worker is asked to stop.",
    ),
]


class SweepCommand(TyperCommand):
    """A command whose option --ray need not name a cluster."""

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser to which --ray alone means whatever cluster there is."""
        parser: Any = super().make_parser(ctx)
        usual = parser.parse_args
        parser.parse_args = lambda args: usual(with_clusters(args))
        return parser


def with_clusters(arguments: list[str]) -> list[str]:
    """Return arguments in which --ray is followed by a cluster, or by an empty text.

    >>> with_clusters(["--ray", "sweep.toml"]), with_clusters(["--ray", "10.0.0.7:6379"])
    (['--ray', '', 'sweep.toml'], ['--ray', '10.0.0.7:6379'])
    """
    given: list[str] = []
    for place, argument in enumerate(arguments):
        given.append(argument)
        if argument == "--ray":
            following = arguments[place + 1 : place + 2]
            if not following or not (following[0] in CLUSTERS or ":" in following[0]):
                given.append("")
    return given


@app.command(
    "run",
    cls=SweepCommand,
    short_help="Plan a sweep, and compute it.",
    epilog=examples(
        "ebbflow sweep run sweep.toml --out runs/sweep --workers 4",
        "ebbflow sweep run --grid alpha=0.3,0.7 --seeds 1-5 --dry-run",
        "ebbflow sweep run sweep.toml --out runs/sweep --workers 0",
    ),
)
@takes_shortcuts
def run(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="SWEEP", help="A TOML file with a sweep, or with a run's configuration."
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="KEY=VALUE,...", help="A key and its values; may be repeated."
        ),
    ] = None,
    preset: Presets = None,
    settings: Settings = None,
    shortcuts: Shortcuts,
    plugin: Plugins = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The sweep's folder; by default under runs/."),
    ] = None,
    workers: Workers = 1,
    grace: Grace = 10,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="[ADDRESS]",
            help="Compute on a Ray cluster: host:port, auto, or local; by default any there is, or "
            "else one of this machine.",
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed cells again.")] = False,
    as_json: Annotated[bool, json_option("how far every cell is")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the folder's path, and errors.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what each cell would take; run nothing, write nothing."
        ),
    ] = False,
) -> None:
    """Plan a sweep, say what it takes, and compute its cells.

    A folder that holds the sweep already is gone on with: nothing is computed twice, and new cells
    are added. Each seed of --seeds is a cell of its own.
    """
    from ebbflow.sweeps.folder import SweepFolder

    if ray is not None:  # before anything is measured or written
        from ebbflow.cluster.connection import refuse_unreachable

        refuse_unreachable(ray, "--ray")
    seeds = shortcuts.pop("seeds")
    wanted = [grid, preset, settings, seeds, *shortcuts.values()]
    if file is None and not any(wanted) and out is not None and SweepFolder(out).exists:
        plan = SweepFolder(out).plan()
    else:
        wish = _wish(file, grid or [], seeds)
        add_options(wish.layers, preset or [], shortcuts, settings or [])
        plan, out = _planned(wish, plugin or []), out or _default_folder(wish)
    silent = quiet or as_json
    ready = _prepared(
        plan, SweepFolder(out), workers, plugin or [], silent, retry=retry, on_ray=ray is not None
    )
    if dry_run:
        _foretell(ready, as_json, quiet)
        return
    _start(ready, ray, grace, retry=retry, as_json=as_json, quiet=quiet)


def _wish(file: Path | None, grid: list[str], seeds: str | None) -> Wish:
    """Return what a file asks for, with the keys on top that options vary."""
    from ebbflow.sweeps.grids import axis, axis_of_text
    from ebbflow.sweeps.planning import Wish, wish_of_file

    if file is not None and file.is_dir():
        here = printable(shlex.quote(str(file)))
        raise EbbflowError(
            f"{file} is a folder: go on with its sweep by `ebbflow sweep --out {here}`, or look at "
            f"it by `ebbflow sweep status {here}`"
        )
    wish = Wish() if file is None else wish_of_file(file)
    axes = [axis_of_text(text) for text in grid]
    if seeds is not None:
        axes.append(axis("seeds", seeds, f"--seeds {seeds}"))
    wish.vary(axes)
    if file is None and not axes:
        raise EbbflowError(
            "there is nothing to sweep over: name a SWEEP.toml, or keys with values, as in --grid "
            "partition.alpha=0.3,0.7 --seeds 1-5"
        )
    return wish


def _planned(wish: Wish, plugins: list[Path]) -> Any:
    from ebbflow.plugins import load_configured
    from ebbflow.sweeps.planning import plan_of

    load_configured(wish.layers, plugins)
    for note in wish.layers.notes:
        typer.echo(f"note: {note}", err=True)
    return plan_of(wish)


def _default_folder(wish: Wish) -> Path:
    from ebbflow.sweeps.cell_names import safe_name

    name = safe_name(wish.name) if wish.name else f"{datetime.now():%Y%m%d-%H%M%S}-sweep"
    return Path("runs") / name


def _prepared(
    plan: Any, folder: SweepFolder, workers: int, plugins: list[Path], silent: bool,
    *, retry: bool, on_ray: bool,
) -> PreparedSweep:  # fmt: skip
    from ebbflow.sweeps.starting import prepared

    def tell(done: int, of: int) -> None:
        if not silent and of > 1 and done < of:
            _progress(f"measuring what cells take: {done} of {of}")
        elif not silent and of > 1:
            _progress("")

    paths = [str(path.resolve()) for path in plugins]
    return prepared(plan, folder, workers, paths, tell, retry=retry, on_ray=on_ray)


def _progress(text: str) -> None:
    """Show a line that the next one takes the place of; nothing where no terminal is."""
    import sys

    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _foretell(ready: PreparedSweep, as_json: bool, quiet: bool) -> None:
    """Print what a sweep would take, and fail as it would if that is more than there is."""
    from ebbflow.sweeps.estimate_tables import estimate_record, sweep_estimate_table
    from ebbflow.sweeps.starting import refuse_full_disk

    if as_json:
        print_json(estimate_record(ready))
    elif not quiet:
        from rich.console import Console

        console = Console()
        table, note = sweep_estimate_table(ready)
        console.print(table)
        typer.echo(note)
    refuse_full_disk(ready)


def _start(
    ready: PreparedSweep, ray: str | None, grace: int, *, retry: bool, as_json: bool, quiet: bool
) -> None:
    from rich.console import Console

    from ebbflow.sweeps.display import SweepDisplay
    from ebbflow.sweeps.estimate_tables import sentence
    from ebbflow.sweeps.starting import run_here, write

    write(ready)
    folder = ready.folder
    if retry:
        folder.retry()
    silent = quiet or as_json
    if not silent:
        typer.echo(sentence(ready), err=True)
    stopped = None
    console = Console(stderr=True, quiet=silent)
    if ray is not None:
        from ebbflow.sweeps.on_ray import run_on_ray

        stopped = run_on_ray(ready, ray, SweepDisplay(console))
    elif ready.workers:
        stopped = run_here(ready, SweepDisplay(console, ready.workers), grace)
    elif not silent:
        here = printable(shlex.quote(str(folder.path)))
        typer.echo(f"planned; each worker is one `ebbflow sweep work {here}`", err=True)
    only_planned = ray is None and not ready.workers
    _conclude(folder, stopped, as_json=as_json, quiet=quiet, only_planned=only_planned)


def _conclude(
    folder: SweepFolder, stopped: int | None, *, as_json: bool, quiet: bool, only_planned: bool
) -> None:
    """Print what came of a sweep, and exit as that demands."""
    from ebbflow.sweeps.status import StatusReader

    status = StatusReader(folder).read()
    if as_json:
        print_json(status.record())
    elif quiet or only_planned:
        typer.echo(printable(str(folder.path)))
    else:
        _print_scores(folder)
        typer.echo(f"records  {printable(str(folder.path))}")
    if stopped is not None:
        here = printable(shlex.quote(str(folder.path)))
        typer.echo(f"stopped: go on by `ebbflow sweep work {here}`", err=True)
        raise typer.Exit(128 + stopped)
    _tell_failures(status)
    for cell in status.cells:
        if cell.state == "waiting" and cell.why and not only_planned:
            typer.echo(f"left     by {printable(cell.why)}", err=True)
    if not only_planned and status.counts["done"] < len(status.cells):
        raise typer.Exit(FAILED)


def _tell_failures(status: SweepStatus) -> None:
    here = printable(shlex.quote(str(status.folder)))
    for cell in status.cells:
        if cell.state == "failed":
            typer.echo(f"failed   {cell.name}: {printable(cell.why)}", err=True)
    counts = status.counts
    if counts["failed"]:
        typer.echo(f"try again by `ebbflow sweep --out {here} --retry`", err=True)


def _print_scores(folder: SweepFolder) -> None:
    """Print the table of scores, if any cell has got that far."""
    from rich.console import Console

    from ebbflow.sweeps.outcome import score_tables, sweep_views

    views = sweep_views(folder, folder.plan())
    for table in score_tables(views):
        Console().print(table)


@app.command(
    short_help="Tell how far a sweep is: cell by cell, and how long it will take.",
    epilog=examples(
        "ebbflow sweep status runs/sweep",
        "ebbflow sweep status runs/sweep --follow",
        "ebbflow sweep status runs/sweep --json",
    ),
)
def status(
    folder: SweepPath,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the sweep is over.")
    ] = False,
    as_json: Annotated[bool, json_option("how far every cell is")] = False,
) -> None:
    """Tell which cells are done, running (and where), failed (and why) or waiting."""
    import time

    from rich.console import Console

    from ebbflow.sweeps.display import SweepDisplay, status_table, summary_line
    from ebbflow.sweeps.folder import SweepFolder
    from ebbflow.sweeps.status import StatusReader

    reader = StatusReader(SweepFolder(folder))
    found = reader.read()
    if follow and not as_json:
        with SweepDisplay(Console()) as display:
            while not found.over:
                display.update(found)
                time.sleep(1.0)
                found = reader.read()
    if as_json:
        print_json(found.record())
        return
    Console().print(status_table(found.cells))
    typer.echo(summary_line(found))


@app.command(
    short_help="Print a sweep's scores, averaged over seeds; write all its records.",
    epilog=examples(
        "ebbflow sweep table runs/sweep",
        "ebbflow sweep table runs/sweep --csv records.csv",
        "ebbflow sweep table runs/sweep --parquet records.parquet",
    ),
)
def table(
    folder: SweepPath,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every round as CSV.")
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FILE", help="Write every round as Parquet."),
    ] = None,
    as_json: Annotated[bool, json_option("the scores, and every round,")] = False,
) -> None:
    """Print a row for each combination, with its seeds averaged: mean, spread, number of seeds.

    CSV, Parquet and JSON hold the records of all cells as one table, with a column for each key
    that varies. Cells that are not done yet are shown as far as they are.
    """
    from rich.console import Console

    from ebbflow.cli.export import check_place
    from ebbflow.core.files import write_atomically
    from ebbflow.report.export.files import csv_text, parquet_bytes
    from ebbflow.sweeps.folder import SweepFolder
    from ebbflow.sweeps.outcome import records_frame, score_records, score_tables, sweep_views

    for option, path in (("--csv", csv), ("--parquet", parquet)):
        if path is not None:
            check_place(option, path)
    sweep_folder = SweepFolder(folder)
    views = sweep_views(sweep_folder, sweep_folder.plan())
    if views.lacking:
        names = "cell has" if len(views.lacking) == 1 else "cells have"
        typer.echo(f"{len(views.lacking)} {names} no rounds yet", err=True)
    if csv is not None:
        write_atomically(csv, csv_text(records_frame(views)).encode())
    if parquet is not None:
        write_atomically(parquet, parquet_bytes(records_frame(views)))
    if as_json:
        print_json({"scores": score_records(views), "records": records_frame(views).rows})
    elif csv is None and parquet is None:
        tables = score_tables(views)
        for each in tables:
            Console().print(each)
        if not tables:
            typer.echo("no transition is over yet, so there is no score")


@app.command(
    short_help="Compute cells of a sweep: one worker, here.",
    epilog=examples(
        "ebbflow sweep work runs/sweep",
        "ebbflow sweep work runs/sweep --plugin mine.py",
    ),
)
def work(
    folder: SweepPath,
    plugin: Plugins = None,
    grace: Grace = 10,
    as_json: Annotated[bool, json_option("how far every cell is in the end")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Be a worker: compute cells until none is left to claim.

    Start as many as you like, on any machine that sees the folder. Each uses the processor cores
    that it is allowed to use.
    """
    from ebbflow.sweeps.folder import SweepFolder, SweepJobs
    from ebbflow.sweeps.status import StatusReader

    sweep_folder = SweepFolder(folder)
    sweep_folder.plan()  # before torch is imported: the folder may be none
    from ebbflow.sweeps.working import Worker

    def say(sentence: str) -> None:
        if not quiet:
            typer.echo(printable(sentence), err=True)

    jobs = SweepJobs(folder, [str(path.resolve()) for path in plugin or []])
    worker = Worker(jobs, say, grace=grace)
    worker.work()
    found = StatusReader(sweep_folder).read()
    if as_json:
        print_json(found.record())
    elif not quiet:
        from ebbflow.sweeps.display import summary_line

        typer.echo(summary_line(found))
    if worker.stopped_by is not None:
        raise typer.Exit(128 + worker.stopped_by)
    _tell_failures(found)
    if found.counts["done"] < len(found.cells):
        for sentence in worker.left.values():
            typer.echo(f"left     {printable(sentence)}", err=True)
        raise typer.Exit(FAILED)
