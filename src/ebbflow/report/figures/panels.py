"""A part of a figure: how high it is, how it is drawn, and what its legend says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LegendEntry = tuple[Any, str]
"""What is shown, and what it is called."""


class FigurePart(NamedTuple):
    """One run, or one algorithm of it, in a figure of its own or below others."""

    title: str
    height: float
    draw: Callable[[Figure | SubFigure], list[LegendEntry]]
