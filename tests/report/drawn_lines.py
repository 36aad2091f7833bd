"""What is drawn on axes, as numbers."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D


def xs(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def curves_in(axis: Axes) -> list[Line2D]:
    """Return the curves: lines that go on over rounds, unlike the borders of sessions."""
    return [line for line in axis.lines if len(set(xs(line))) > 1]
