"""The command line. Heavy imports wait inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.core.errors import EbbflowError
from ebbflow.paper.flags import with_flags

if TYPE_CHECKING:
    from ebbflow.config import Config
    from ebbflow.records import Records

app = typer.Typer(
    name="ebbflow",
    help="Federated learning when devices come and go.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
presets_app = typer.Typer(help="List the presets, or show one.", invoke_without_command=True)
data_app = typer.Typer(help="Get data sets and look at them.", invoke_without_command=True)
history_app = typer.Typer(help="Look into a run's history.", invoke_without_command=True)
app.add_typer(presets_app, name="presets")
app.add_typer(data_app, name="data")
app.add_typer(history_app, name="history")

ConfigFile = Annotated[Path | None, typer.Argument(help="A TOML file with the configuration.")]
Presets = Annotated[
    list[str] | None, typer.Option("--preset", help="A preset's name; may be repeated, later wins.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key; may be repeated.")
]
DatasetName = Annotated[
    str | None,
    typer.Option("--dataset", help="A name of `ebbflow data ls`, or the path of an .npz file."),
]
AlgorithmNames = Annotated[
    str | None, typer.Option("--algorithm", help="FL algorithms, by commas.")
]
PartitionName = Annotated[str | None, typer.Option("--partition", help="Who holds which samples.")]
Overlap = Annotated[
    str | None, typer.Option("--overlap", help="Share of labels in common, 0 to 1.")
]
Alpha = Annotated[str | None, typer.Option("--alpha", help="Concentration of the Dirichlet draws.")]
Devices = Annotated[
    str | None,
    typer.Option("--devices", help="Devices per session; in all, without Dirichlet."),
]
Sessions = Annotated[str | None, typer.Option("--sessions", help="Number of sessions S.")]
PilotSessions = Annotated[str | None, typer.Option("--pilot", help="Number of pilot sessions P.")]
Rounds = Annotated[str | None, typer.Option("--rounds", help="Rounds per session T.")]
SeedList = Annotated[str | None, typer.Option("--seeds", help="Seeds, by commas.")]
MethodNames = Annotated[
    str | None, typer.Option("--methods", help="Ways to start a session, by commas.")
]
Windows = Annotated[
    str | None, typer.Option("--window", help="First rounds to average over, by commas.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder; by default under runs/.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")]
RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")]

LISTS = ("algorithm", "seeds", "methods", "window")


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
        resolved = _configure(base, config, preset or [], given, settings or [])
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
    from ebbflow.report.progress import progress_display

    config = experiment.read_config(folder)
    with _told_how_to_go_on(folder), closing(progress_display(config)) as display:
        found = experiment.resume(folder, watchers=[display])
    _show(found, config, json)


def _configure(
    base: dict[str, Any],
    file: Path | None,
    presets: list[str],
    shortcuts: dict[str, str | None],
    settings: list[str],
) -> Config:
    from ebbflow.config import SHORTCUTS
    from ebbflow.layers import Layers, literal

    layers = Layers()
    layers.add(base, "default")
    if file is not None:
        layers.add_file(file)
    for name in presets:
        layers.add_preset(name)
    for name, text in shortcuts.items():
        if text is not None:
            parts = [part.strip() for part in text.split(",")]
            # A path or a name stays as it is, though it may look like a number.
            read = str if name in ("dataset", "algorithm", "partition", "methods") else literal
            value = [read(part) for part in parts] if name in LISTS else read(text)
            layers.add_key(SHORTCUTS[name], value, f"--{name}")
    for setting in settings:
        layers.add_setting(setting)
    return layers.config()


def _default_folder(config: Config) -> Path:
    stem = f"{Path(config.dataset).stem}-{'-'.join(config.algorithm)}"
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{stem}"


def _launch(config: Config, out: Path, as_json: bool) -> None:
    from ebbflow.records import claim_folder

    # Before torch is imported, so that a run that is killed in its first second can be resumed.
    claim_folder(out, config.model_dump())
    from ebbflow import experiment
    from ebbflow.report.progress import progress_display

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


@presets_app.callback()
def presets(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every name, one per line.")
    ] = False,
) -> None:
    """List the presets, or show one."""
    if context.invoked_subcommand is not None:
        return
    from ebbflow.layers import preset_names, preset_text
    from ebbflow.paper.presets import patterns, rows

    if everything:
        typer.echo("\n".join(preset_names()))
        return
    for name in preset_names():
        if name not in rows():
            typer.echo(f"{name:14} {preset_text(name).splitlines()[0].removeprefix('# ')}")
    typer.echo(f"\n{len(rows())} rows of the paper's tables; add authors-code or paper-text:")
    for title, shortened in patterns():
        typer.echo("\n".join(["", title, *(f"  {line}" for line in shortened)]))


@presets_app.command("show")
def presets_show(name: Annotated[str, typer.Argument(help="A preset's name.")]) -> None:
    """Print a preset as TOML."""
    from ebbflow.layers import preset_text

    typer.echo(preset_text(name), nl=False)


@data_app.command("ls")
def data_ls() -> None:
    """List the known data sets and where they are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ebbflow.data.download import SOURCES, find

    table = Table("name", "train", "test", "classes", "licence", "where")
    for name, source in SOURCES.items():
        folder = find(source)
        where = "in the package" if source.bundled else str(folder or f"ebbflow data get {name}")
        sizes = (f"{source.train:,}", f"{source.test:,}", str(source.classes))
        table.add_row(name, *sizes, source.licence, escape(where))
    Console().print(table)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set's name.")],
    mirror: Annotated[
        str | None, typer.Option("--from", help="Another address that holds the same files.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Another folder than the cache.")] = None,
) -> None:
    """Download a data set and check it."""
    from ebbflow.data.download import fetch

    folder = fetch(name, mirror=mirror, destination=to, progress=sys.stderr.isatty())
    typer.echo(f"{name} is in {folder}")


@data_app.command("verify")
def data_verify(
    name: Annotated[
        str | None, typer.Argument(help="A data set; by default all that are here.")
    ] = None,
) -> None:
    """Check the files of a data set against their checksums."""
    from ebbflow.data.download import SOURCES, find, verify

    names = [name] if name else [known for known, source in SOURCES.items() if find(source)]
    incomplete = []
    for each in names:
        checks = verify(each)
        for check in checks:
            typer.echo(f"{check.status:14} {check.path}")
        if any(check.status != "ok" for check in checks):
            incomplete.append(each)
    if incomplete:
        raise EbbflowError(f"{incomplete[0]} is not intact: run `ebbflow data get {incomplete[0]}`")


@data_app.command("show")
def data_show(
    config: ConfigFile = None,
    preset: Presets = None,
    settings: Settings = None,
    dataset: DatasetName = None,
    partition: PartitionName = None,
    overlap: Overlap = None,
    alpha: Alpha = None,
    devices: Devices = None,
    sessions: Sessions = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="The seed; of several, by commas, the first.")
    ] = None,
    picture: Annotated[
        Path, typer.Option("--picture", metavar="FILE", help="Where to draw it.")
    ] = Path("data.png"),
    everything: Annotated[
        bool, typer.Option("--all", help="Print every device and every label.")
    ] = False,
) -> None:
    """Show who holds which samples in which session; nothing is trained."""
    given = {
        "dataset": dataset,
        "partition": partition,
        "overlap": overlap,
        "alpha": alpha,
        "devices": devices,
        "sessions": sessions,
        "seeds": seeds,
    }
    resolved = _configure({}, config, preset or [], given, settings or [])
    from rich.console import Console

    from ebbflow.report import shares

    shares.check_picture(picture)
    found = shares.shares_of(resolved)
    console = Console()
    console.print(shares.session_table(found, everything))
    console.print(shares.device_table(found, everything))
    try:
        shares.shares_picture(found, picture)
        typer.echo(f"picture  {picture}")
    except EbbflowError as missing:
        typer.echo(str(missing))


@history_app.command("ls")
def history_ls(folder: RunPath) -> None:
    """List the past sessions that a run keeps, and check their files."""
    from rich.console import Console

    from ebbflow.report.histories import history_table

    Console().print(history_table(folder))


@history_app.command("show")
def history_show(
    folder: RunPath,
    session: Annotated[str, typer.Argument(help="A session's number.")],
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    seed: Annotated[str | None, typer.Option(help="Only this seed.")] = None,
) -> None:
    """Show one past session: what it drew on, how far away each was, and what is stored."""
    from ebbflow.report.histories import session_report

    only = None if seed is None else _whole(seed, "--seed")
    for line in session_report(folder, _whole(session, "SESSION"), method, only):
        typer.echo(line)


def _whole(text: str, place: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise EbbflowError(f"{place} {text!r} is no whole number: write one, as in 5") from None


@app.command()
def doctor() -> None:
    """Check the installation, the machine and the data."""
    from ebbflow.report.doctor import examine

    healthy = True
    for check in examine():
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:12} {check.found}")
        healthy = healthy and check.ok
    if not healthy:
        raise EbbflowError("not all is well: see the lines marked FAIL for what to do")


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from ebbflow import __version__

        typer.echo(__version__)
        raise typer.Exit
    _help_if_alone(context)


@data_app.callback()
@history_app.callback()
def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line: one sentence and exit code 2 for what the user can mend."""
    try:
        code = app(standalone_mode=False)
    except EbbflowError as error:
        _fail(str(error))
    except typer.TyperException as error:  # an unknown option, a missing argument
        sentence = getattr(error, "format_message", error.__str__)().rstrip(".")
        _fail(f"{sentence}; see `ebbflow --help`")
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("stopped", err=True)
        sys.exit(130)
    except OSError as error:
        _fail(
            f"{error.filename or 'a file'}: {error.strerror or error}; check the path and the disk"
        )
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str) -> None:
    typer.echo(f"ebbflow: {sentence}", err=True)
    sys.exit(2)
