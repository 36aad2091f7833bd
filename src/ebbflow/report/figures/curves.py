"""Scores over all rounds: one session after the other, and never a stroke from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.stretches import SessionSpan, Stretch, spans, stretches, undecided
from ebbflow.report.colours import TOGETHER
from ebbflow.report.figures.legends import method_entries
from ebbflow.report.figures.panels import FigurePart, LegendEntry
from ebbflow.report.figures.style import (
    MARKERS,
    SHADE,
    UNDECIDED,
    group_look,
    line_style,
    score_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

NARROW = 0.2
"""Inches of a session below which its number takes the room of several."""
WIDE = 0.75
"""Inches of a session from which the word is written before each number."""
MARGIN = 0.5
"""Inches beside the axes."""


def curve_panels(view: RunView, width: float, height: float | None = None) -> list[FigurePart]:
    """Return a panel for each algorithm."""
    high = 1.25 + 0.12 * width if height is None else height
    return [
        FigurePart(algorithm, high, partial(_draw, view, algorithm, width - MARGIN))
        for algorithm in view.algorithms
    ]


def _draw(
    view: RunView, algorithm: str, inches: float, figure: Figure | SubFigure
) -> list[LegendEntry]:
    return draw(figure.subplots(), view, algorithm, inches)


def draw(axis: Axes, view: RunView, algorithm: str, inches: float) -> list[LegendEntry]:
    """Draw the curves of an algorithm on axes of so many inches; return what a legend says."""
    found, sessions = stretches(view, algorithm), spans(view, algorithm)
    places = {span.session: span for span in sessions}
    whole = sum(span.rounds for span in sessions)
    for session in undecided(view, algorithm):
        span = places[session]
        axis.axvspan(span.before, span.before + span.rounds, color=SHADE, linewidth=0, zorder=0)
        if inches * span.rounds / whole >= WIDE:
            middle, height = span.before + span.rounds / 2, 0.97 if view.judge.higher else 0.03
            axis.text(
                middle,
                height,
                UNDECIDED,
                transform=axis.get_xaxis_transform(),
                ha="center",
                va="top" if view.judge.higher else "bottom",
                fontsize="small",
                color=TOGETHER.light,
            )
    for stretch in found:
        draw_stretch(axis, stretch, view.methods, places[stretch.session].before)
    score_axis(axis, view.judge, [low for s in found for _, _, low, _ in s.points()])
    _label_sessions(axis, sessions, inches)
    axis.set_xlabel("round")
    return method_entries([s.methods for s in found], view.methods, len(view.seeds))


def draw_stretch(
    axis: Axes, stretch: Stretch, methods: Sequence[str], before: int = 0, last: int | None = None
) -> None:
    """Draw what was achieved in one session, up to a last round, with a marker at the start."""
    points = [point for point in stretch.points() if last is None or point[0] <= last]
    look = group_look(stretch.methods, methods)
    rounds = [before + t for t, *_ in points]
    _, means, lows, highs = zip(*points, strict=True)
    if len(stretch.seeds) > 1:
        axis.fill_between(rounds, lows, highs, color=look.light, alpha=0.16, linewidth=0, zorder=2)
    # The method that is named first lies above the others, and those that coincide below them.
    alone = len(stretch.methods) == 1
    axis.plot(
        rounds,
        means,
        marker=MARKERS[look.marker],
        markevery=[0],
        markeredgewidth=0,
        zorder=4 - methods.index(stretch.methods[0]) / len(methods) if alone else 2.5,
        clip_on=False,
        **line_style(look),
    )


def _label_sessions(axis: Axes, sessions: Sequence[SessionSpan], inches: float) -> None:
    """Mark where sessions meet, and number them above as far as there is room."""
    end = sessions[-1].before + sessions[-1].rounds
    for span in sessions[1:]:
        axis.axvline(span.before, color="#bdbdbd", linewidth=0.6, zorder=1)
    axis.set_xlim(0, end)
    narrowest = inches * min(span.rounds for span in sessions) / end
    step = next((step for step in (1, 2, 5, 10, 20) if step * narrowest >= NARROW), 50)
    shown = [span for span in sessions if step == 1 or span.session % step == 0]
    word = "session " if narrowest >= WIDE else ""
    above = axis.secondary_xaxis("top")
    above.set_xticks(
        [span.before + span.rounds / 2 for span in shown],
        [f"{word}{span.session}" for span in shown],
    )
    above.tick_params(length=0, pad=1)
    above.spines["top"].set_visible(False)
    if not word:
        above.set_xlabel("session")
