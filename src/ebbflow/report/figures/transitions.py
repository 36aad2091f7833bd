"""The first rounds after each transition, enlarged and side by side."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.stretches import SessionSpan, spans, stretches
from ebbflow.core.errors import EbbflowError
from ebbflow.report.figures.curves import draw_stretch
from ebbflow.report.figures.legends import method_entries
from ebbflow.report.figures.panels import FigurePart, LegendEntry
from ebbflow.report.figures.style import score_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MOST_ROWS = 4
"""Rows of transitions: of many, the first are shown."""
LEAST_WIDTH = 1.5
"""Of the part for one transition, in inches."""


def transition_panels(view: RunView, width: float) -> list[FigurePart]:
    """Return a panel for each algorithm, with a small one for each of its transitions."""
    panels = []
    for algorithm in view.algorithms:
        rows, columns = arranged(len(_transitions(view, algorithm)), width)
        height = 0.35 + rows * (0.65 + 0.35 * width / columns)
        panels.append(FigurePart(algorithm, height, partial(draw, view, algorithm, width)))
    return panels


def _transitions(view: RunView, algorithm: str) -> list[SessionSpan]:
    begun = {r.session for r in view.rounds if r.algorithm == algorithm}
    found = [s for s in spans(view, algorithm) if s.transition is not None and s.session in begun]
    if not found:
        first = view.config.pilot.sessions + 3
        raise EbbflowError(
            f"{view.folder or view.name} has no transition yet, for the first session with a "
            f"choice of models is session {first}: let it run on, or choose --figure curves"
        )
    return found


def arranged(count: int, width: float) -> tuple[int, int]:
    """Return in how many rows and columns small panels stand.

    >>> arranged(4, 3.5), arranged(4, 7.16), arranged(5, 7.16), arranged(27, 3.5)
    ((2, 2), (1, 4), (2, 3), (4, 2))
    """
    most = max(1, int(width / LEAST_WIDTH))
    rows = math.ceil(count / most)
    return (rows, math.ceil(count / rows)) if rows <= MOST_ROWS else (MOST_ROWS, most)


def draw(
    view: RunView, algorithm: str, width: float, figure: Figure | SubFigure
) -> list[LegendEntry]:
    """Draw the first rounds after each transition, as many as the largest window has."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - slow to import
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    everything = _transitions(view, algorithm)
    rows, columns = arranged(len(everything), width)
    sessions = everything[: rows * columns]
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    last = min(max(view.config.window), max(span.rounds for span in sessions))
    found = stretches(view, algorithm)
    lows, groups = [], []
    for axis, span in zip(axes.flat, sessions, strict=False):
        for stretch in (s for s in found if s.session == span.session):
            draw_stretch(axis, stretch, view.methods, last=last)
            lows += [low for t, _, low, _ in stretch.points() if t <= last]
            groups.append(stretch.methods)
        axis.set_title(f"transition {span.transition} (session {span.session})")
    for place, axis in enumerate(axes.flat):
        axis.set_visible(place < len(sessions))
        score_axis(axis, view.judge, lows)
        axis.set_xlim(0, last)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        below = place + columns
        if place % columns:
            axis.set_ylabel("")
        if below >= len(sessions):
            axis.set_xlabel("round of the session")
            axis.tick_params(labelbottom=True)
    entries = method_entries(groups, view.methods, len(view.seeds))
    if len(everything) > len(sessions):
        note = f"the first {len(sessions)} of {len(everything)} transitions"
        entries.append((Patch(alpha=0), note))
    return entries
