"""Legends that say what was drawn, in the order in which methods were named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ebbflow.report.colours import TOGETHER
from ebbflow.report.figures.panels import LegendEntry
from ebbflow.report.figures.style import (
    MARKERS,
    SHADE,
    SIZE,
    band_note,
    group_look,
    group_name,
    line_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE = 0.155
"""The height of a line of a legend in inches, for type of the usual size."""


def method_entries(
    groups: Iterable[tuple[str, ...]], known: Sequence[str], seeds: int
) -> list[LegendEntry]:
    """Return the entries of methods, of those that coincide somewhere, and of the bands."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - slow to import
    from matplotlib.patches import Patch  # noqa: PLC0415

    entries: list[LegendEntry] = []
    for group in sorted(set(groups), key=lambda g: (len(g), [known.index(name) for name in g])):
        look = group_look(group, known)
        line = Line2D([], [], marker=MARKERS[look.marker], markeredgewidth=0, **line_style(look))
        # Where all coincide, the ground is shaded as well.
        alike = len(group) == len(known) > 1
        handle = (Patch(facecolor=SHADE), line) if alike else line
        entries.append((handle, group_name(group, known)))
    if seeds > 1:
        entries.append((Patch(facecolor=TOGETHER.light, alpha=0.3), band_note(seeds)))
    return entries


def packed(
    entries: Sequence[LegendEntry], width: float, size: float = SIZE
) -> list[list[LegendEntry]]:
    """Return the lines of a legend: as many entries in each as so many inches have room for."""
    from matplotlib.textpath import TextPath  # noqa: PLC0415 - slow to import

    lines: list[list[LegendEntry]] = []
    used = 0.0
    for handle, label in entries:
        letters = TextPath((0, 0), label, size=size - 1).get_extents().width
        # With a sample, and the space around it.
        room = (letters + 4.2 * (size - 1)) / 72
        if not lines or used + room > width:
            lines.append([])
            used = 0.0
        lines[-1].append((handle, label))
        used += room
    return lines


def legend_height(lines: Sequence[Sequence[LegendEntry]], size: float = SIZE) -> float:
    """Return how high a legend is, in inches."""
    return (LINE * len(lines) + 0.04) * size / SIZE if lines else 0.0


def write_legend(
    figure: Figure, lines: Sequence[Sequence[LegendEntry]], size: float = SIZE
) -> None:
    """Write a legend below a figure, whose layout has to leave its height free."""
    for place, line in enumerate(lines):
        handles, labels = zip(*line, strict=True)
        height = LINE * (len(lines) - place - 0.5) * size / SIZE / figure.get_figheight()
        legend = figure.legend(
            list(handles),
            list(labels),
            loc="center",
            bbox_to_anchor=(0.5, height),
            ncols=len(line),
            borderpad=0,
        )
        legend.set_in_layout(False)
