"""The command line: run, compare and draw every table and figure of the paper."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chang2025.flags import with_flags
from chang2025.folders import COSTS_PAGE, PAGE, RESULTS, RUNS, writable
from ebbflow.cli.options import AsJson, SeedList, help_if_alone
from ebbflow.cli.options import Out as RunFolder
from ebbflow.cli.values import seeds_of
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from chang2025.cells import Cell
    from chang2025.study_cells import Scale

app = typer.Typer(
    help="The paper's tables and figures: run them, compare them, draw them.",
    invoke_without_command=True,
)

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Of `python -m chang2025 list`.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Of `python -m chang2025 list`.")]
ScaleName = Annotated[
    str, typer.Option("--scale", help="full: the paper's set-up; small: without a GPU.")
]
Results = Annotated[
    Path,
    typer.Option(
        "--results",
        metavar="DIR",
        help="The folder of the results.",
        show_default="the kept results",
    ),
]
Runs = Annotated[
    Path, typer.Option("--runs", metavar="DIR", help="The folder for unfinished runs.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the run folders.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PATTERN", help="Cells of such names; may be repeated."),
]

Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Processes that compute cells, each on its cores.")
]


@app.callback()
def _root(context: typer.Context) -> None:
    help_if_alone(context)


@app.command("run")
def run(
    ids: Ids,
    scale: ScaleName = "full",
    seeds: SeedList = None,
    only: Only = None,
    results: Results = RESULTS,
    runs: Runs = RUNS,
    keep: Keep = False,
    device: Annotated[
        str | None, typer.Option("--device", help="What to train on: cpu or cuda.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option("--weights", metavar="FILE", help="Trained weights, for the ResNets."),
    ] = None,
    workers: Workers = 1,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
) -> None:
    """Run what a table or figure needs, cell by cell; what is done is not run again."""
    from chang2025.running import is_done

    extra = {}
    if device is not None:
        extra["device"] = device
    if weights is not None:
        extra["model.weights"] = str(weights)
    cells = [cell.with_settings(extra) if extra else cell for cell in _cells(ids, scale, seeds)]
    wanted = [cell for cell in cells if _wanted(cell.name, only)]
    if cells and not wanted:
        patterns = " or ".join(only or [])
        raise EbbflowError(
            f"--only {patterns} fits none of the {len(cells)} cells: `--dry-run` without it lists "
            f"them, as in {cells[0].name}"
        )
    cells = wanted
    if dry:
        for cell in cells:
            typer.echo(f"{'done' if is_done(cell, results) else 'open'}  {cell.name}")
        return
    _run(cells, writable(results, "--results"), runs, keep, workers)


@app.command("fit")
def fit(
    results: Results = RESULTS,
    runs: Runs = RUNS,
    keep: Keep = False,
) -> None:
    """Find the window and the reading that fit two MNIST cells best; run what that needs."""
    from rich.console import Console

    from chang2025.fit import fit as find
    from chang2025.fit import fit_cells, write_fit
    from chang2025.tables import fit_tables

    _run(fit_cells(), writable(results, "--results"), runs, keep)
    fitted = find(results)
    console = Console()
    for table in fit_tables(fitted):
        console.print(table)
    typer.echo(f"{fitted.window}; reading {fitted.reading}: {write_fit(fitted, results)}")


@app.command("compare")
def compare(
    name: Id,
    window: Annotated[
        int | None,
        typer.Option("--window", min=1, help="So many rounds; by default what was fitted."),
    ] = None,
    early: Annotated[
        bool, typer.Option("--early", help="With the last round of the session before as first.")
    ] = False,
    results: Results = RESULTS,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write rows.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write a page.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Print ours beside theirs: differences, whether winner and order agree, causes."""
    from rich.console import Console

    from chang2025 import rendering
    from chang2025.reports import report
    from chang2025.windows import Window

    if early and window is None:
        raise EbbflowError("--early says where a window begins: add its length, as in --window 5")
    given = None if window is None else Window(window, early)
    comparison = report(name, results, given)
    for path, text in (
        (csv, rendering.as_csv),
        (markdown, rendering.as_markdown),
        (html, rendering.as_html),
    ):
        if path is not None:
            _write(path, text(comparison))
    if json:
        typer.echo(rendering.as_json(comparison))
        return
    console = Console()
    for table in rendering.as_tables(comparison, console.width):
        console.print(table)
    for line in comparison.lines:
        typer.echo(line.replace("`", ""))


@app.command("figure")
def draw(
    name: Id,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PNG", help="By default ID.png.")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Draw a figure of the paper from our results."""
    from chang2025.figures import figure

    path = out or Path(f"{name}.png")
    figure(name, results, path)
    typer.echo(f"picture  {path}")


@app.command("list")
def listing(
    results: Results = RESULTS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List every table and figure: what it needs, what it would take, what is done."""
    import json as encode

    from rich.console import Console

    from chang2025.tables import listing_table, states

    studies = states(results)
    if json:
        typer.echo(encode.dumps(studies, indent=1))
    else:
        Console().print(listing_table(studies))


@app.command("page")
def page(
    results: Results = RESULTS,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PAGE",
            help="Its pictures go into a folder of the same name beside it.",
            show_default="docs/reproduction.md of this checkout",
        ),
    ] = PAGE,
    draw: Annotated[
        bool, typer.Option("--draw/--no-draw", help="Draw the pictures as well.")
    ] = True,
) -> None:
    """Write the page on everything that was run, from the results alone."""
    from chang2025.page import write_page

    path = writable(out, "--out")
    if not path.parent.is_dir():
        raise EbbflowError(f"--out {path}: there is no folder {path.parent}; make it first")
    for written in write_page(results, path, draw=draw):
        typer.echo(f"written  {written}")


@app.command("costs")
def costs(
    page: Annotated[
        Path,
        typer.Argument(
            metavar="PAGE",
            help="The page whose tables are filled in.",
            show_default="docs/costs.md of this checkout",
        ),
    ] = COSTS_PAGE,
) -> None:
    """Write the tables and the picture of the page on costs beside the paper's numbers."""
    from chang2025.costs_page import write_costs

    path = writable(page, "PAGE")
    if not path.is_file():
        raise EbbflowError(f"there is no page {path}: name one that has the tables to fill in")
    for written in write_costs(path):
        typer.echo(f"written  {written}")


@app.command("translate")
@with_flags
def translated(
    true_scaffold: Annotated[
        bool, typer.Option("--true-scaffold", help="SCAFFOLD, not what the authors' code runs.")
    ] = False,
    use_gpu: Annotated[bool, typer.Option("--use-gpu", help="Heed --gpu_index.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Run it, as compare does.")] = False,
    out: RunFolder = None,
    json: AsJson = False,
    **flags: Any,
) -> None:
    """Take the flags of the paper's own command, and print the same as TOML or run it."""
    from chang2025.command_line import BEHAVIOUR, translate
    from ebbflow.cli.experiments import default_folder, launch
    from ebbflow.config.merge import Layers
    from ebbflow.simulation.methods import check_parameters

    if not run and (json or out is not None):
        raise EbbflowError("--out and --json say what becomes of a run: add --run")
    translation = translate(flags, true_scaffold=true_scaffold, use_gpu=use_gpu)
    layers = Layers()
    layers.add_preset(BEHAVIOUR)
    for key, value in translation.settings.items():
        layers.add_key(key, value, translation.places.get(key, "translate"))
    resolved = layers.config()
    check_parameters(resolved)
    if not run:
        typer.echo(translation.toml(), nl=False)
        return
    for note in translation.notes:
        typer.echo(f"note: {note}", err=True)
    launch(resolved, out or default_folder(resolved), json)


@app.command("speed")
def speed(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The kept table is publications/chang2025/speed.json.",
        ),
    ],
) -> None:
    """Time short runs of every model and write the table that estimates are made from."""
    from chang2025.speed import measure_all, write_speeds

    if not out.parent.is_dir():
        raise EbbflowError(f"--out {out}: there is no folder {out.parent}; make it first")
    path = writable(out, "--out")
    speeds = {}
    for name, seconds in measure_all():
        typer.echo(f"{name}: {1e6 * seconds:.1f} µs per device-step and lane")
        speeds[name] = seconds
    write_speeds(speeds, path)
    typer.echo(f"written  {path}")


def _write(path: Path, text: str) -> None:
    from ebbflow.core.files import write_atomically

    if not path.parent.is_dir():
        raise EbbflowError(f"{path}: there is no folder {path.parent}; make it first")
    write_atomically(path, text.encode())
    typer.echo(f"written  {path}", err=True)


def _cells(ids: list[str], scale: str, seeds: str | None) -> list[Cell]:
    """Return the cells that tables and figures need, each once; say which need no runs."""
    from chang2025.reports import FIGURES
    from chang2025.studies import default_seeds, study

    chosen = _scale(scale)
    numbers = default_seeds(chosen) if seeds is None else seeds_of(seeds)
    cells: dict[str, Cell] = {}
    for name in ids:
        own = study(name).cells(chosen, numbers)
        if not own:
            command = "figure" if name in FIGURES else "compare"
            typer.echo(f"{name} needs no runs: `python -m chang2025 {command} {name}` shows it")
        cells |= {cell.name: cell for cell in own}
    return list(cells.values())


def _scale(text: str) -> Scale:
    from chang2025.study_cells import SCALES

    for scale in SCALES:
        if scale == text:
            return scale
    raise EbbflowError(f"--scale {text!r} is no scale: choose {' or '.join(SCALES)}")


def _wanted(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch(name, pattern) for pattern in patterns)


def _run(cells: list[Cell], results: Path, runs: Path, keep: bool, workers: int = 1) -> None:
    from chang2025.running import run_cells

    failures = run_cells(cells, results, runs, keep=keep, workers=workers, say=typer.echo)
    if failures:
        raise EbbflowError("; ".join(failures))
