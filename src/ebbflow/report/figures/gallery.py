"""Figures by name: a page's, a notebook's, or the content of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ebbflow.analysis.views.run_view import RunView, check_rounds
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.report.export.frames import named_apart
from ebbflow.report.figures.costs import cost_panels
from ebbflow.report.figures.curves import curve_panels
from ebbflow.report.figures.devices import device_panels
from ebbflow.report.figures.legends import legend_height, packed, write_legend
from ebbflow.report.figures.mixture import mixture_panels
from ebbflow.report.figures.panels import FigurePart
from ebbflow.report.figures.style import SIZE, drawn, empty, inches, styled
from ebbflow.report.figures.timeline import timeline_panels
from ebbflow.report.figures.transitions import transition_panels

if TYPE_CHECKING:
    from ebbflow.report.figures.run_figure import RunFigure

MOST_PANELS = 10


class FigureKind(NamedTuple):
    """A figure that runs can be drawn as."""

    about: str
    panels: Callable[[RunView, float], list[FigurePart]]


FIGURES: dict[str, FigureKind] = {
    "curves": FigureKind("scores over all rounds, session by session", curve_panels),
    "transitions": FigureKind("the first rounds after each transition", transition_panels),
    "timeline": FigureKind("which devices were in which session", timeline_panels),
    "mixture": FigureKind("the past models that each start was mixed from", mixture_panels),
    "devices": FigureKind("which share of devices has which score", device_panels),
    "costs": FigureKind("seconds, joules and bytes of a session", cost_panels),
}


def figure(views: Sequence[RunView], name: str, width: str | float = "column") -> RunFigure:
    """Return a figure of one or several runs.

    ``width`` is "column", "page", or a number of inches. The figure belongs to no window: a
    notebook shows it where it is named, and its ``savefig`` writes it.
    """
    if name not in FIGURES:
        raise unknown(name, FIGURES, "figure", "--figure")
    across = inches(str(width))
    for view in views:
        check_rounds(view)
    panels = [
        panel._replace(title=_title(view, panel, several=len(views) > 1))
        for view in named_apart(views)
        for panel in FIGURES[name].panels(view, across)
    ]
    if not 0 < len(panels) <= MOST_PANELS:
        raise EbbflowError(
            f"--figure {name} would have {len(panels)} parts, and has room for 1 to {MOST_PANELS}: "
            "name fewer runs, or choose by --algorithm"
        )
    return stacked(panels, across)


def stacked(
    panels: Sequence[FigurePart], width: float, size: float = SIZE, *, titled: bool = False
) -> RunFigure:
    """Return panels below each other, with one legend for all; several have titles in any case."""
    titled = titled or len(panels) > 1
    with styled(size):
        heights = [panel.height + (size / 40 if titled else 0.0) for panel in panels]
        whole = empty(width, sum(heights))
        parts = whole.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
        entries = []
        for part, panel in zip(parts, panels, strict=True):
            entries += panel.draw(part)
            if titled:
                part.suptitle(drawn(panel.title, 90), x=0.005, ha="left", fontweight="bold")
        entries = list({label: (handle, label) for handle, label in entries}.values())
        lines = packed(entries, width, size)
        below = legend_height(lines, size)
        share = below / (sum(heights) + below)
        whole.set_figheight(sum(heights) + below)
        whole.set_layout_engine("constrained", rect=(0, share, 1, 1 - share))
        write_legend(whole, lines, size)
        # Once drawn, all has its place, whatever the settings are when it is saved.
        whole.draw_without_rendering()
        return whole


def _title(view: RunView, panel: FigurePart, *, several: bool) -> str:
    return f"{view.name}, {panel.title}" if several else panel.title


def narrowed(
    view: RunView,
    algorithms: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> RunView:
    """Return a run of which only some algorithms, methods and seeds are shown; none means all."""
    for option, what, asked, known in (
        ("--algorithm", "algorithm", algorithms, view.algorithms),
        ("--methods", "method", methods, view.methods),
        ("--seed", "seed", map(str, seeds), list(map(str, view.seeds))),
    ):
        for name in asked:
            if name not in known:
                raise unknown(name, known, what, f"{view.folder or view.name}, {option}")
    wanted: dict[str, set[Any]] = {
        "algorithm": set(algorithms),
        "method": set(methods),
        "seed": set(seeds),
    }

    def kept(fields: Mapping[str, Any]) -> bool:
        # Some events concern all methods, or all seeds.
        return all(
            not chosen or name not in fields or fields[name] in chosen
            for name, chosen in wanted.items()
        )

    return replace(
        view,
        rounds=[r for r in view.rounds if kept(r._asdict())],
        events=[event for event in view.events if kept(event)],
    )
