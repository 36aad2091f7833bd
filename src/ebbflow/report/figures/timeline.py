"""Who was there when: devices by sessions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ebbflow.analysis.views.presence import presence
from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.figures.panels import FigurePart, LegendEntry
from ebbflow.report.figures.style import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

VISITS = {"joined": "#0072b2", "stayed": "#b7d7ec", "returned": "#e69f00"}
"""How a device came; they differ in grey, too."""
NAMED = 45
"""Devices that can be named one by one."""
ROW, LOWEST, HIGHEST = 0.115, 1.0, 5.2
"""The height of a device's row, and of all of them, in inches."""


def timeline_panels(view: RunView, width: float) -> list[FigurePart]:
    """Return a panel for the first seed: devices are the same for all methods."""
    seed = view.seeds[0]
    rows = ROW * len(presence(view, seed).devices)
    height = 0.45 + min(max(rows, LOWEST), HIGHEST)
    return [FigurePart(f"seed {seed}", height, partial(draw, view, seed))]


def draw(view: RunView, seed: int, figure: Figure | SubFigure) -> list[LegendEntry]:
    """Draw a raster of devices by sessions under one seed."""
    from matplotlib.collections import PatchCollection  # noqa: PLC0415 - slow to import
    from matplotlib.patches import Patch, Rectangle  # noqa: PLC0415

    there = presence(view, seed)
    axis = figure.subplots()
    count, named = len(there.devices), len(there.devices) <= NAMED
    gap = 0.14 if named else 0.0
    entries: list[LegendEntry] = []
    for how, colour in VISITS.items():
        boxes = [
            Rectangle((session - 0.5 + gap / 2, row - 0.5 + gap / 2), 1 - gap, 1 - gap)
            for row, visits in enumerate(there.visits)
            for session, came in visits.items()
            if came == how
        ]
        if boxes:
            axis.add_collection(PatchCollection(boxes, facecolor=colour, linewidth=0))
            entries.append((Patch(facecolor=colour), how))
    sessions = [facts.session for facts in there.sessions]
    axis.set_xlim(min(sessions) - 0.5, max(sessions) + 0.5)
    axis.set_ylim(count - 0.5, -0.5)
    axis.set_xticks(sessions if len(sessions) <= 16 else [s for s in sessions if s % 5 == 0])
    axis.set_xlabel(f"session (seed {seed})")
    if named:
        axis.set_yticks(range(count), [drawn(name, 20) for name in there.names])
        axis.tick_params(axis="y", length=0, labelsize=6.5)
        axis.set_ylabel("device")
    else:
        axis.set_ylabel(f"{count} devices, by first session")
    axis.spines[["left", "bottom"]].set_visible(False)
    return entries
