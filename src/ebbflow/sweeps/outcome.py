"""What a sweep came to: scores averaged over seeds, and the records of all cells as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from ebbflow.analysis.views.run_view import RunView, load_view
from ebbflow.core.errors import EbbflowError
from ebbflow.plugins import warn_of_lacking
from ebbflow.report.export.columns import Frame
from ebbflow.report.export.frames import IN_ROWS
from ebbflow.report.export.frames import table as frame_of
from ebbflow.report.export.result_tables import WindowScore, window_scores
from ebbflow.report.export.sheets import decimals, shown, spread
from ebbflow.runs.records import CONFIG
from ebbflow.sweeps.folder import SweepFolder, is_same
from ebbflow.sweeps.grids import SEEDS
from ebbflow.sweeps.plan import SweepCell, SweepPlan


class SweepViews(NamedTuple):
    """The runs of a sweep that have finished a round, and the names of the others."""

    plan: SweepPlan
    cells: list[SweepCell]
    views: list[RunView]
    lacking: list[str]


class SeedGroup(NamedTuple):
    """Cells that differ in their seeds alone, seen as one run with all of these seeds."""

    settings: dict[str, Any]
    view: RunView


def sweep_views(folder: SweepFolder, plan: SweepPlan) -> SweepViews:
    """Return the runs of a sweep, finished or not."""
    cells, views, lacking = [], [], []
    for cell in plan.cells:
        run = folder.run_folder(cell.name)
        view = load_view(run) if (run / CONFIG).is_file() and is_same(cell, run) else None
        if view is None or not view.rounds:
            lacking.append(cell.name)
            continue
        cells.append(cell)
        views.append(replace(view, name=cell.name))
    for plugins in {tuple(view.config.plugins) for view in views}:
        warn_of_lacking(plugins)
    return SweepViews(plan, cells, views, lacking)


def records_frame(found: SweepViews, name: str = "rounds") -> Frame:
    """Return a table of all cells, with a column for each key that varies.

    Algorithms, methods and seeds have columns of their own in every table.
    """
    if not found.views:
        raise EbbflowError("no cell has finished a round yet: there is nothing to write")
    varied = [key for key in found.plan.varied if key not in IN_ROWS]
    values = {key: [cell.value(key) for cell in found.cells] for key in varied}
    return frame_of(found.views, name, values)


def combinations_of(found: SweepViews) -> list[SeedGroup]:
    """Return the combinations of a sweep, in order."""
    keys = [key for key in found.plan.varied if key != SEEDS]
    groups: dict[str, list[int]] = {}
    for place, cell in enumerate(found.cells):
        rest = {key: value for key, value in cell.settings.items() if key != SEEDS}
        groups.setdefault(repr(rest), []).append(place)
    return [
        SeedGroup(
            {key: found.cells[places[0]].value(key) for key in keys},
            _together([found.views[place] for place in places]),
        )
        for places in groups.values()
    ]


def _together(views: Sequence[RunView]) -> RunView:
    """Return runs with different seeds as one run."""
    seeds = list(dict.fromkeys(seed for view in views for seed in view.config.seeds))
    return replace(
        views[0],
        config=views[0].config.model_copy(update={SEEDS: seeds}),
        rounds=[r for view in views for r in view.rounds],
        events=[event for view in views for event in view.events],
        finished=all(view.finished for view in views),
    )


def score_records(found: SweepViews) -> list[dict[str, Any]]:
    """Return the mean score of every combination, algorithm, method and window over all seeds."""
    return [
        {
            "settings": combination.settings,
            "measure": combination.view.judge.name,
            **_plain(score),
        }
        for combination in combinations_of(found)
        for score in _overall(combination.view)
    ]


def _overall(view: RunView) -> Iterator[WindowScore]:
    """Yield the scores over all transitions."""
    return (score for score in window_scores(view) if score.transition is None)


def _plain(score: WindowScore) -> dict[str, Any]:
    kept = ("algorithm", "method", "window", "seeds", "mean", "deviation", "best")
    return {name: value for name, value in score._asdict().items() if name in kept}


def score_tables(found: SweepViews) -> list[Table]:
    """Return a table for each window and measure: a row for each combination and algorithm."""
    rows: dict[tuple[int, str], list[tuple[SeedGroup, str, list[WindowScore]]]] = {}
    for combination in combinations_of(found):
        scores = list(_overall(combination.view))
        for window, algorithm in dict.fromkeys((s.window, s.algorithm) for s in scores):
            own = [s for s in scores if (s.window, s.algorithm) == (window, algorithm)]
            kind = window, combination.view.judge.name
            rows.setdefault(kind, []).append((combination, algorithm, own))
    return [_table(found, window, own) for (window, _), own in rows.items()]


def _table(
    found: SweepViews, window: int, rows: Sequence[tuple[SeedGroup, str, list[WindowScore]]]
) -> Table:
    judge = rows[0][0].view.judge
    keys = [key for key in found.plan.varied if key not in IN_ROWS]
    methods = list(dict.fromkeys(score.method for _, _, own in rows for score in own))
    digits = decimals((s.mean for _, _, own in rows for s in own), percent=judge.percent)
    after = f"over the first {window} round{'s' if window > 1 else ''} after a transition"
    table = Table(title=f"{judge.title} {after}", title_justify="left")
    table.caption = "mean ± standard deviation over seeds; the best of a row is bold"
    table.caption_justify = "left"
    for name in ("algorithm", *keys):
        table.add_column(escape(name), overflow="fold")
    for name in ("seeds", *methods):
        table.add_column(escape(name), justify="right")
    for combination, algorithm, own in rows:
        by_method = {score.method: score for score in own}
        table.add_row(
            escape(algorithm),
            *(escape(_value(combination.settings, key)) for key in keys),
            str(max(score.seeds for score in own)),
            *(_score(by_method.get(name), digits, alone=len(own) == 1) for name in methods),
        )
    return table


def _value(settings: Mapping[str, Any], key: str) -> str:
    value = settings[key]
    return ", ".join(map(shown, value)) if isinstance(value, list) else shown(value)


def _score(score: WindowScore | None, digits: int | None, *, alone: bool) -> str:
    if score is None or score.mean != score.mean:
        return "–"
    deviation = None if score.deviation != score.deviation else score.deviation
    text = spread({"mean": score.mean, "deviation": deviation}, digits)
    return f"[bold]{text}[/]" if score.best and not alone else text
