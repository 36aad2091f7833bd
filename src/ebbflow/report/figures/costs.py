"""What a session costs each method: seconds, joules and bytes, and on what they were spent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.spending import PARTS, SessionCost, session_costs, spending
from ebbflow.core.errors import EbbflowError
from ebbflow.report.figures.panels import FigurePart, LegendEntry
from ebbflow.runs.summary import transition

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LOOKS = {
    "training": ("#9db4c6", ""),
    "probe": ("#d55e00", "////"),
    "survey": ("#17404f", ""),
}
"""The parts of a cost: a colour, and a pattern for prints without colours."""
SIDE_BY_SIDE = 5.0
QUANTITIES = {"time": "s", "energy": "J", "traffic": "B"}
"""What is shown, and its unit."""


def cost_panels(view: RunView, width: float) -> list[FigurePart]:
    """Return a panel for each algorithm."""
    spent = spending(view)
    if spent.reason:
        where = view.folder or view.name
        raise EbbflowError(f"the costs of {where} are not known: {spent.reason}")
    costs = session_costs(spent.usages)
    bars = 0.16 * len(view.methods) + 0.42
    height = bars + 0.1 if width >= SIDE_BY_SIDE else len(QUANTITIES) * bars
    return [
        FigurePart(a, height, partial(draw, view, [c for c in costs if c.algorithm == a], width))
        for a in view.algorithms
    ]


def means(view: RunView, costs: list[SessionCost]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Return what a session with a choice costs by method and part; without any, a session.

    Each is a triple: seconds, joules, bytes.
    """
    pilot = view.config.pilot.sessions
    chosen = [c for c in costs if transition(c.session, pilot) is not None] or costs
    count = {m: len({c.session for c in chosen if c.method == m}) for m in view.methods}
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for method in view.methods:
        for part in PARTS:
            own = [c for c in chosen if (c.method, c.part) == (method, part)]
            sums = [(c.seconds, c.joules, c.bytes_down + c.bytes_up) for c in own]
            if sums:
                total = (sum(values) / count[method] for values in zip(*sums, strict=True))
                found.setdefault(method, {})[part] = tuple(total)
    return found


def draw(
    view: RunView, costs: list[SessionCost], width: float, figure: Figure | SubFigure
) -> list[LegendEntry]:
    """Draw bars for each method, on top of each other what they were spent on."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - slow to import
    from matplotlib.ticker import EngFormatter, MaxNLocator  # noqa: PLC0415

    beside = width >= SIDE_BY_SIDE
    shape = (1, len(QUANTITIES)) if beside else (len(QUANTITIES), 1)
    axes = figure.subplots(*shape, sharey=beside, squeeze=False).flat
    found = means(view, costs)
    for place, (axis, (quantity, unit)) in enumerate(zip(axes, QUANTITIES.items(), strict=True)):
        shown = EngFormatter(unit, sep="\N{THIN SPACE}")
        for row, parts in enumerate(found.values()):
            left = 0.0
            for part, values in parts.items():
                colour, hatch = LOOKS[part]
                axis.barh(
                    row,
                    values[place],
                    left=left,
                    height=0.66,
                    facecolor=colour,
                    hatch=hatch,
                    edgecolor="white",
                    linewidth=0,
                )
                left += values[place]
            axis.annotate(
                shown(float(f"{left:.3g}")),
                (left, row),
                (2, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
        axis.set_yticks(range(len(found)), list(found))
        axis.set_ylim(len(found) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.22)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(shown)
        axis.set_xlabel(f"{quantity} per session")
        axis.grid(axis="x")
    used = [part for part in PARTS if any(part in parts for parts in found.values())]
    return [
        (Patch(facecolor=LOOKS[p][0], hatch=LOOKS[p][1], edgecolor="white", linewidth=0), p)
        for p in used
    ]
