"""The command line: run forks and trajectories, and show what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

import typer

from ebbflow.cli.options import SeedList, help_if_alone
from ebbflow.cli.values import seeds_of
from ebbflow.core.errors import EbbflowError

app = typer.Typer(
    help="The learned start, measured: forks from one state, and whole trajectories.",
    invoke_without_command=True,
)

Families = Annotated[
    list[str],
    typer.Argument(
        metavar="FAMILY...",
        help="softmax, fast, mlp, texts, images, strangers, sensitivity, malice.",
    ),
]
Results = Annotated[
    Path | None,
    typer.Option("--results", metavar="DIR", help="The folder of the results.", show_default=False),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PATTERN", help="Cells of such names; may be repeated."),
]


@app.callback()
def _root(context: typer.Context) -> None:
    help_if_alone(context)


@app.command("fork")
def fork(
    families: Families,
    seeds: SeedList = None,
    only: Only = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cells at a time.")] = 1,
    results: Results = None,
) -> None:
    """Run fork studies: from one state, W rounds from every start; what is done is kept."""
    from learned_start.keeping import RESULTS, run_forks
    from learned_start.settings import DESIGN_SEEDS, cells_of

    numbers = DESIGN_SEEDS if seeds is None else seeds_of(seeds)
    cells = [cell for family in families for cell in cells_of(family, numbers)]
    wanted = _wanted(cells, only)
    failures = run_forks(wanted, results or RESULTS, jobs)
    if failures:
        raise EbbflowError(f"{len(failures)} of {len(wanted)} cells failed: {failures[0]}")


@app.command("regret")
def regret(families: Families, seeds: SeedList = None, results: Results = None) -> None:
    """Print how far each start leads the best simple one, over the forks that there are."""
    from rich.console import Console

    from learned_start.keeping import RESULTS, is_done, read_rows
    from learned_start.regret import leads
    from learned_start.settings import DESIGN_SEEDS, cells_of
    from learned_start.tables import regret_table, worst_table

    folder = results or RESULTS
    numbers = DESIGN_SEEDS if seeds is None else seeds_of(seeds)
    console = Console()
    for family in families:
        cells = cells_of(family, numbers)
        done = [cell for cell in cells if is_done(cell, folder)]
        found = [lead for cell in done for lead in leads(cell, read_rows(cell, folder))]
        console.print(f"{family}: {len(done)} of {len(cells)} cells are done")
        if found:
            console.print(regret_table(found).for_terminal())
            console.print(worst_table(found).for_terminal())


@app.command("run")
def run(
    families: Annotated[
        list[str], typer.Argument(metavar="FAMILY...", help="paper, appendix, churn.")
    ],
    seeds: SeedList = None,
    only: Only = None,
    results: Results = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Processes that compute cells.")
    ] = 1,
) -> None:
    """Run trajectories: each start on its own history; what is done is kept."""
    from chang2025.running import run_cells
    from learned_start.settings import DESIGN_SEEDS
    from learned_start.trajectories import FAMILIES, TRAJECTORIES

    numbers = DESIGN_SEEDS if seeds is None else seeds_of(seeds)
    cells = [cell for family in families for cell in _family(FAMILIES, family)(numbers)]
    wanted = _wanted(cells, only)
    runs = Path("runs") / "learned-start"
    failures = run_cells(wanted, results or TRAJECTORIES, runs, workers=workers)
    if failures:
        raise EbbflowError(f"{len(failures)} of {len(wanted)} cells failed: {failures[0]}")


@app.command("leads")
def leads(
    families: Annotated[list[str], typer.Argument(metavar="FAMILY...", help="paper, appendix.")],
    seeds: SeedList = None,
    results: Results = None,
) -> None:
    """Print in how many rows each start is first, and by how much, over what has been run."""
    from rich.console import Console

    from learned_start.settings import DESIGN_SEEDS
    from learned_start.tables import first_table, lead_table
    from learned_start.trajectories import FAMILIES, TRAJECTORIES, rows_of

    numbers = DESIGN_SEEDS if seeds is None else seeds_of(seeds)
    compared = {name: FAMILIES[name] for name in ("paper", "appendix")}
    for family in families:
        rows = rows_of(list(_family(compared, family)(numbers)), results or TRAJECTORIES)
        if rows:
            Console().print(first_table(rows).for_terminal())
            Console().print(lead_table(rows).for_terminal())


@app.command("within")
def within(seeds: SeedList = None, results: Results = None) -> None:
    """Run sessions with learned steps every few rounds, and without."""
    from learned_start.keeping import RESULTS
    from learned_start.settings import DESIGN_SEEDS
    from learned_start.within import run_within

    run_within(DESIGN_SEEDS if seeds is None else seeds_of(seeds), results or RESULTS)


@app.command("charged")
def charged(seeds: SeedList = None, results: Results = None) -> None:
    """Run the paper's settings with every start, and charge probes and surveys."""
    from learned_start.charged import run_charged
    from learned_start.keeping import RESULTS
    from learned_start.settings import DESIGN_SEEDS

    run_charged(DESIGN_SEEDS if seeds is None else seeds_of(seeds), results or RESULTS)


@app.command("page")
def page() -> None:
    """Write the tables and the picture of docs/learned-start.md from the kept results."""
    from learned_start.page import PAGE, PICTURE, write_page
    from learned_start.picture import draw

    write_page()
    draw(PICTURE)
    typer.echo(f"{PAGE}, {PICTURE}")


Chosen = TypeVar("Chosen")


def _family(families: Mapping[str, Chosen], name: str) -> Chosen:
    from ebbflow.core.errors import unknown

    if name not in families:
        raise unknown(name, families, "family", "the command")
    return families[name]


class Named(Protocol):
    """A cell of any kind."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


AnyCell = TypeVar("AnyCell", bound=Named)


def _wanted(cells: Sequence[AnyCell], only: Sequence[str] | None) -> list[AnyCell]:
    """Return the cells whose names fit one of the patterns; all of them without a pattern."""
    wanted = [cell for cell in cells if not only or any(fnmatch(cell.name, p) for p in only)]
    if not wanted:
        raise EbbflowError(f"--only {' or '.join(only or [])} fits none of {len(cells)} cells")
    return wanted
