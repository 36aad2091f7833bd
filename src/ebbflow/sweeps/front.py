"""Sweeps from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from rich.console import Console

from ebbflow.api import Shortcuts
from ebbflow.config.schema import SHORTCUTS, as_list
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.names import shortened
from ebbflow.outcomes.loading import load
from ebbflow.outcomes.several_runs import Runs
from ebbflow.plugins import load_configured
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.folder import CELLS, SweepFolder
from ebbflow.sweeps.grids import SEEDS, axes_of, axis, dotted
from ebbflow.sweeps.planning import Wish, listed_cell, plan_of, wish_of_file
from ebbflow.sweeps.starting import prepared, refuse_unfinished, run_here, write
from ebbflow.sweeps.status import StatusReader


def sweep(
    dataset: Path | str | None = None,
    *,
    config: Path | str | None = None,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    preset: str | Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    plugins: Sequence[Path | str] = (),
    out: Path | str,
    workers: int | str = 1,
    progress: bool = False,
    **shortcuts: Unpack[Shortcuts],
) -> Runs:
    """Compute many runs, each in a process of its own, and return their records.

    What is done in the folder is not computed again. If a cell fails, the others go on, and an
    error at the end says why.

    Args:
        dataset: The data, by name or path; by default those of ``config`` or a preset, or else the
            digits.
        config: The file of a sweep, or the configuration of a run.
        grid: Keys with the values that each takes, or a list of cells with settings of their own.
        preset: Names of presets; later ones win.
        settings: Any dotted configuration keys, the same for all cells.
        plugins: Python files that register algorithms, starts and more.
        out: The folder of the sweep; one that holds it already is gone on with.
        workers: How many processes compute cells on this machine; or a Ray cluster to compute
            them on: its address, "auto" for the one that this machine is part of, or "local".
        progress: Whether to show progress.
        **shortcuts: As for `compare`, and the same for all cells, but for ``seeds``: there is a
            cell for each.
    """
    _check_types(grid, settings, workers)
    if isinstance(workers, str):
        from ebbflow.cluster.connection import refuse_unreachable  # noqa: PLC0415 - only for Ray

        refuse_unreachable(workers, "argument workers")
    wish = Wish() if config is None else wish_of_file(Path(config))
    for name in as_list(preset) if isinstance(preset, str) else preset:
        wish.layers.add_preset(name)
    given: dict[str, Any] = dict(shortcuts)
    if dataset is not None:
        given["dataset"] = dataset
    if isinstance(grid, Mapping):
        wish.vary(axes_of(grid, "argument grid"))
    else:
        places = enumerate(grid, start=1)
        wish.listed += [listed_cell(cell, f"cell {n} of argument grid") for n, cell in places]
    if SEEDS in given:
        seeds = given.pop(SEEDS)
        values = [seeds] if isinstance(seeds, int) else seeds
        wish.vary([axis(SEEDS, values, "argument seeds")])
    for name, value in given.items():
        if name not in SHORTCUTS:
            raise unknown(name, SHORTCUTS, "argument", "ebbflow.sweep")
        wish.layers.add_key(SHORTCUTS[name], _named(name, value), f"argument {name}")
    for key, value in (settings or {}).items():
        wish.layers.add_key(dotted([key], "argument settings"), value, "argument settings")
    load_configured(wish.layers, plugins)
    here = 1 if isinstance(workers, str) else workers
    folder = SweepFolder(Path(out))
    paths = [str(Path(path).resolve()) for path in plugins]
    ready = prepared(plan_of(wish), folder, here, paths, on_ray=isinstance(workers, str))
    write(ready)
    display = SweepDisplay(None if progress else Console(quiet=True), here)
    if isinstance(workers, str):
        from ebbflow.sweeps.on_ray import run_on_ray  # noqa: PLC0415 - Ray may not be there

        stopped = run_on_ray(ready, workers, display)
    else:
        stopped = run_here(ready, display)
    if stopped is not None:
        raise KeyboardInterrupt
    refuse_unfinished(StatusReader(folder).read())
    found = load(folder.path / CELLS)
    return found if isinstance(found, Runs) else Runs([found])


def _check_types(grid: Any, settings: Any, workers: Any) -> None:
    """Raise an error if an argument is of a kind that a sweep cannot take."""
    number = isinstance(workers, int) and not isinstance(workers, bool)
    if not number and (not isinstance(workers, str) or workers.strip().isdecimal()):
        raise EbbflowError(
            f"argument workers = {workers!r} is neither a number of processes, as in workers=4, "
            'nor a Ray cluster: its address, "auto" or "local"'
        )
    if number and workers < 1:
        raise EbbflowError(f"argument workers = {workers} computes nothing: use at least 1")
    cells = [grid] if isinstance(grid, Mapping) else grid
    if not isinstance(cells, Sequence) or not all(isinstance(cell, Mapping) for cell in cells):
        raise EbbflowError(
            f"argument grid = {shortened(repr(grid))} is neither keys with their values nor a list "
            'of cells: write grid={"alpha": [0.3, 0.7]} or grid=[{"rounds": 5}, {"rounds": 9}]'
        )
    if settings is not None and not isinstance(settings, Mapping):
        raise EbbflowError(
            f"argument settings = {shortened(repr(settings))} has no keys: write "
            'settings={"data.limit_train": 300}'
        )


def _named(name: str, value: Any) -> Any:
    """Return a setting that a process elsewhere can read: names, numbers and paths."""
    for part in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(part, str | int | float | bool | Path):
            raise EbbflowError(
                f"argument {name}: a sweep computes in other processes, so it takes names and "
                "paths; register what is your own in a file, and name that in plugins"
            )
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
