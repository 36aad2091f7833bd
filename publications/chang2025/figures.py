"""The paper's figures: accuracy over the rounds, and costs over the bandwidth.

All need the extra ``plot``. The two illustrations are in `chang2025.illustrations`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from chang2025.collecting import Family, table_families
from chang2025.illustrations import algorithm_illustration, system_model
from chang2025.published_costs import published_rounds
from chang2025.reports import FIGURES
from chang2025.results import CurveKey
from chang2025.studies import study
from chang2025.study_cells import MAIN_ALGORITHMS
from chang2025.time_to_accuracy import TARGETS, Adaptation, all_adaptations
from ebbflow.analysis.run_costs import model_size, sweep, task_of
from ebbflow.config.merge import Layers
from ebbflow.config.paper_rows import ALGORITHMS, DATASETS
from ebbflow.config.resolve import resolve
from ebbflow.core.errors import EbbflowError
from ebbflow.report.cost_tables import sweep_picture
from ebbflow.report.plots import draw_curves, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWS = 20


class FigurePanel(NamedTuple):
    """One algorithm in one setting."""

    family: Family
    algorithm: str


def figure(name: str, results: Path, path: Path) -> None:
    """Draw a figure of the paper into a file."""
    study(name)
    if name not in FIGURES:
        raise EbbflowError(f"{name} is a table: `python -m chang2025 compare {name}` prints it")
    if not path.parent.is_dir():
        raise EbbflowError(f"--out {path}: there is no folder {path.parent}; make it first")
    plain: dict[str, Callable[[Path], None]] = {
        "system-model": system_model,
        "algorithm-illustration": algorithm_illustration,
        "bandwidth": lambda out: bandwidth(results, out),
    }
    if name in plain:
        plain[name](path)
    else:
        curves(name.removesuffix("-curves"), results, path)


# --- curves --------------------------------------------------------------------------------------


def curves(dataset: str, results: Path, path: Path) -> None:
    """Draw accuracy over the rounds around every transition, a panel per setting and algorithm.

    Lines are means over seeds, bands span the smallest and the largest.
    """
    own = table_families(dataset, results)
    panels = [
        FigurePanel(f, name) for f in own for name in f.config.algorithm if name in MAIN_ALGORITHMS
    ]
    if not panels:
        raise EbbflowError(
            f"there are no results of {dataset}: run `python -m chang2025 run "
            f"{dataset}-accuracy` first"
        )
    settings = list(dict.fromkeys(panel.family.setting for panel in panels))
    columns = [name for name in MAIN_ALGORITHMS if any(panel.algorithm == name for panel in panels)]
    pyplot = drawing()
    fig, axes = pyplot.subplots(
        len(settings),
        len(columns),
        figsize=(1 + 3.6 * len(columns), 0.8 + 2.3 * len(settings)),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for axis in axes.flat:
        axis.set_visible(False)
    for panel in panels:
        axis = axes[settings.index(panel.family.setting), columns.index(panel.algorithm)]
        axis.set_visible(True)
        _draw(axis, panel)
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(ALGORITHMS[name], fontsize=10, pad=14)
    for axis, setting in zip(axes[:, 0], settings, strict=True):
        axis.set_ylabel(f"{setting}\naccuracy (%)", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("round, from the first transition on", fontsize=8)
    handles, labels = next(a for a in axes.flat if a.get_visible()).get_legend_handles_labels()
    wide = min(len(labels), 2 * len(columns))  # what fits
    fig.legend(handles, labels, loc="outside lower center", ncols=wide, frameon=False)
    fig.suptitle(f"{DATASETS[dataset]}: accuracy on the labels present", x=0.01, ha="left")
    fig.savefig(path, dpi=130)
    pyplot.close(fig)


def _draw(axis: Axes, panel: FigurePanel) -> None:
    """Draw the sessions with a choice, one after another."""
    family, config = panel.family, panel.family.config
    first = config.pilot.sessions + 3
    sessions = range(first, config.sessions + 1)
    length = family.results[0].facts["sessions"][-1]["rounds"]
    for method in config.methods:
        lines = [
            [
                value
                for s in sessions
                for value in result.curves[CurveKey(panel.algorithm, method, s)]
            ]
            for result in family.results
        ]
        draw_curves(axis, lines, method, linewidth=1.2)
    for s in sessions:
        start = (s - first) * length
        axis.axvline(start + 0.5, color="0.8", linewidth=0.8, zorder=0)
        axis.annotate(
            f"{s - first + 1}.",
            (start + 1, 1.0),
            xycoords=("data", "axes fraction"),
            fontsize=7,
            color="0.4",
            va="bottom",
        )
    axis.set_ylim(0, 100)
    axis.margins(x=0.01)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


# --- bandwidth -----------------------------------------------------------------------------------


def bandwidth(results: Path, path: Path) -> None:
    """Draw latency and energy to the target on SVHN over the bandwidth.

    By the rounds of our own runs, where every start has arrived, or else by the paper's.
    """
    label, rounds = svhn_rounds(results)
    layers = Layers()
    layers.add_key("dataset", "svhn", "bandwidth")
    config = resolve(layers.config())
    task = task_of(config, model_size(config), "fedavg")
    devices = config.partition.devices or 1
    points = sweep(config, task, "bandwidth", rounds, devices=devices, draws=DRAWS)
    title = f"SVHN, to {100 * TARGETS['svhn']:g} % of the warm start's peak, {label}"
    sweep_picture(points, "bandwidth", path, title)


def svhn_rounds(results: Path) -> tuple[str, dict[str, float]]:
    """Return the rounds to the target by start, and whose they are."""
    moon = [a for a in all_adaptations(results, ["svhn"]) if a.algorithm == "moon"]
    first = [a for a in moon if a.setting == moon[0].setting]
    if first and all(a.arrivals == a.sessions for a in first):
        return f"by our rounds (MOON, {first[0].setting})", _rounds(first)
    label, rounds = published_rounds("svhn")
    return f"by the paper's rounds ({label})", rounds


def _rounds(adaptations: Sequence[Adaptation]) -> dict[str, float]:
    return {a.method: a.rounds for a in adaptations}
