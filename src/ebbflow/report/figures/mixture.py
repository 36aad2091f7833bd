"""Where each start came from: the weights of past models, method by method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ebbflow.analysis.views.origins import CARRIED, INITIAL, PILOT, Origin, origins
from ebbflow.analysis.views.run_view import RunView
from ebbflow.core.errors import EbbflowError
from ebbflow.report.figures.panels import FigurePart, LegendEntry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import AsinhNorm
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage

FIRST = (INITIAL, PILOT, CARRIED)
"""Models that come before those of past sessions."""
LINEAR = 0.2
"""Up to this, colours grow with weights; beyond, with their logarithms."""
TICKS = (0.2, 1, 5, 20, 100)
LEAST_WEIGHT = 5e-4
"""Smaller weights are not shown."""
ROW, LOWEST, HIGHEST = 0.16, 0.5, 2.6
"""The height of a model's row, and of all rows of a method, in inches."""
LABEL, BAR = 0.13, 0.09
"""The height of a row's name, and the width of the bar of colours."""
SIDE_BY_SIDE = 5.0
"""Inches of a figure from which methods stand side by side."""
NUMBERED = 0.24
"""Inches of a cell from which its weight is written into it."""


def mixture_panels(view: RunView, width: float) -> list[FigurePart]:
    """Return a panel for each algorithm, under the first seed."""
    seed = view.seeds[0]
    panels = []
    for algorithm in view.algorithms:
        methods = mixed(view, algorithm, seed)
        if width >= SIDE_BY_SIDE:
            rows = [parts_of([start for starts in methods.values() for start in starts])]
        else:
            rows = [parts_of(starts) for starts in methods.values()]
        height = sum(_rows_height(len(parts)) + 0.5 for parts in rows)
        panels.append(FigurePart(algorithm, height, partial(draw, view, algorithm, seed, width)))
    return panels


def _rows_height(count: int) -> float:
    return min(max(ROW * count, LOWEST), HIGHEST)


def mixed(view: RunView, algorithm: str, seed: int) -> dict[str, list[Origin]]:
    """Return the starts of the methods that ever mixed models, or else say that none did."""
    found: dict[str, list[Origin]] = {}
    for origin in origins(view):
        if (origin.key.algorithm, origin.key.seed) == (algorithm, seed):
            found.setdefault(origin.key.method, []).append(origin)
    chosen = {m: found[m] for m in view.methods if any(len(o.parts) > 1 for o in found.get(m, ()))}
    if not chosen:
        raise EbbflowError(
            f"no start of {view.folder or view.name} mixes models: name a run with a method that "
            "does, such as learned or warm_start, or let it run on"
        )
    return chosen


def parts_of(starts: Sequence[Origin]) -> list[str]:
    """Return the parts that starts were mixed from, the oldest models first."""
    used = {
        part
        for start in starts
        for part, weight in start.parts.items()
        if abs(weight) >= LEAST_WEIGHT
    }
    return sorted(used, key=_age)


def _age(part: str) -> tuple[int, int, bool, str]:
    kind, _, session = part.partition(" ")
    known = part in FIRST
    number = int(session) if session.isdigit() else 0
    return FIRST.index(part) if known else len(FIRST), number, kind != "start", part


def part_title(part: str) -> str:
    """Return what a row is called.

    >>> part_title("final 3"), part_title("start 4"), part_title("carried")
    ('end of 3', 'start of 4', 'carried over')
    """
    kind, _, session = part.partition(" ")
    if session:
        return f"{'end' if kind == 'final' else kind} of {session}"
    return "carried over" if part == CARRIED else part


def draw(
    view: RunView, algorithm: str, seed: int, width: float, figure: Figure | SubFigure
) -> list[LegendEntry]:
    """Draw a raster of models by sessions for each method, in colours of signed weights."""
    from matplotlib.colors import AsinhNorm  # noqa: PLC0415 - slow to import

    methods = mixed(view, algorithm, seed)
    largest = max(abs(w) for starts in methods.values() for s in starts for w in s.parts.values())
    limit = max(1.0, largest)
    scale = AsinhNorm(LINEAR, -limit, limit)
    if width >= SIDE_BY_SIDE:
        axes = figure.subplots(1, len(methods), squeeze=False, sharey=True)[0]
        everything = parts_of([start for starts in methods.values() for start in starts])
        rows = [everything] * len(methods)
        length = _rows_height(len(everything))
        inches = (width - 1.5) / len(methods) - 0.1
    else:
        rows = [parts_of(starts) for starts in methods.values()]
        heights = [_rows_height(len(parts)) for parts in rows]
        length = sum(heights) + 0.5 * (len(heights) - 1)
        axes = figure.subplots(len(methods), 1, squeeze=False, height_ratios=heights)[:, 0]
        inches = width - 1.4
    for axis, (method, starts), parts in zip(axes, methods.items(), rows, strict=True):
        image = _draw_weights(axis, starts, parts, scale, inches)
        axis.set_title(f"{method} (seed {seed})")
        axis.set_xlabel("start of session")
    ticks = [sign * value for value in TICKS if value <= limit for sign in (-1, 1)]
    bar = figure.colorbar(image, ax=list(axes), aspect=length / BAR, fraction=0.05, pad=0.015)
    bar.ax.set_yticks([0, *ticks], [f"{t:g}".replace("-", "\N{MINUS SIGN}") for t in (0, *ticks)])
    bar.minorticks_off()
    bar.set_label("weight")
    bar.outline.set_linewidth(0)
    return []


def _draw_weights(
    axis: Axes, starts: Sequence[Origin], parts: Sequence[str], scale: AsinhNorm, inches: float
) -> AxesImage:
    sessions = [start.key.session for start in starts]
    weights = np.full((len(parts), len(sessions)), np.nan)
    for column, start in enumerate(starts):
        for row, part in enumerate(parts):
            weight = start.parts.get(part, 0.0)
            weights[row, column] = weight if abs(weight) >= LEAST_WEIGHT else np.nan
    image = axis.imshow(weights, cmap="RdBu", norm=scale, aspect="auto")
    cell = inches / len(sessions)
    if cell >= NUMBERED:
        for row, column in zip(*np.nonzero(~np.isnan(weights)), strict=True):
            value = weights[row, column]
            dark = abs(float(scale(value)) - 0.5) > 0.3
            colour = "white" if dark else "black"
            middle: dict[str, Any] = {"ha": "center", "va": "center"}
            axis.text(column, row, _written(value), fontsize=6.5, color=colour, **middle)
    step = math.ceil(len(parts) * LABEL / _rows_height(len(parts)))
    axis.set_yticks(range(0, len(parts), step), [part_title(part) for part in parts[::step]])
    every = 1 if cell >= 0.15 else 5
    shown = [place for place, session in enumerate(sessions) if every == 1 or session % every == 0]
    axis.set_xticks(shown, [str(sessions[place]) for place in shown])
    axis.tick_params(length=0)
    axis.set_facecolor("#f4f4f4")
    axis.spines[["left", "bottom"]].set_visible(False)
    return image


def _written(weight: float) -> str:
    """Return a weight in as few characters as there is room for.

    >>> _written(-3.5301), _written(1.0), _written(11.49), _written(0.066)
    ('−3.5', '1', '11', '0.07')
    """
    digits = 2 if abs(weight) < 0.995 else 1 if abs(weight) < 9.95 else 0
    text = f"{weight:.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return text.rstrip("0").rstrip(".") if digits else text
