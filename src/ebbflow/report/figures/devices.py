"""How well final models suit each device: which share of devices has which score."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ebbflow.analysis.views.run_view import RunView
from ebbflow.core.errors import EbbflowError
from ebbflow.report.colours import looks
from ebbflow.report.figures.panels import FigurePart, LegendEntry
from ebbflow.report.figures.style import MARKERS, line_style
from ebbflow.runs.summary import transition

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


def device_panels(view: RunView, width: float) -> list[FigurePart]:
    """Return a panel for each algorithm."""
    return [
        FigurePart(algorithm, 1.2 + 0.16 * width, partial(draw, view, algorithm))
        for algorithm in view.algorithms
        if device_scores(view, algorithm)
    ]


def device_scores(view: RunView, algorithm: str) -> dict[str, list[float]]:
    """Return the scores of devices at the end of sessions with a choice, by method, in order."""
    found: dict[str, list[float]] = {}
    for event in view.events:
        if (
            event["event"] == "tested"
            and event["algorithm"] == algorithm
            and transition(event["session"], view.config.pilot.sessions) is not None
        ):
            found.setdefault(event["method"], []).extend(event.get("each", {}).values())
    scores = {method: sorted(found[method]) for method in view.methods if found.get(method)}
    if not scores:
        raise EbbflowError(
            f"{view.folder or view.name} has no scores of devices: they are recorded where test "
            "samples say whose they are, as docs/own-data.md tells, and after a transition"
        )
    return scores


def draw(view: RunView, algorithm: str, figure: Figure | SubFigure) -> list[LegendEntry]:
    """Draw which share of devices has at most which score."""
    axis = figure.subplots()
    scores = device_scores(view, algorithm)
    known = looks(view.methods)
    entries: list[LegendEntry] = []
    for place, (method, values) in enumerate(scores.items()):
        shares = [100 * (n + 1) / len(values) for n in range(len(values))]
        look = known[method]
        (line,) = axis.plot(
            [values[0], *values],
            [0.0, *shares],
            drawstyle="steps-post",
            marker=MARKERS[look.marker],
            markevery=max(1, len(values) // 6),
            markeredgewidth=0,
            zorder=4 - place / len(scores),
            **line_style(look),
        )
        entries.append((line, method))
    direction = "" if view.judge.higher else ", less is better"
    name = view.judge.title.removesuffix(" (%)")
    unit = " (%)" if view.judge.percent else ""
    axis.set_xlabel(f"{name} on a device's own test samples{unit}{direction}")
    axis.set_ylabel("devices up to it (%)")
    axis.set_ylim(0, 101)
    axis.grid()
    return entries
