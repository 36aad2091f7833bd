"""The picture of a run, and what other pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ebbflow.analysis.views.run_view import RunView
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.core.names import printable, shortened
from ebbflow.report.figures.curves import curve_panels
from ebbflow.report.figures.gallery import stacked
from ebbflow.report.figures.style import drawn, encoded
from ebbflow.runs.summary import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ebbflow.report.figures.run_figure import RunFigure

COLOURS = {
    "learned": "#000000",
    "warm_start": "#0072b2",
    "previous": "#d55e00",
    "average": "#009e73",
    "continuous": "#cc79a7",
}
"""Our starts in colours that differ for colour-blind readers and in grey; other starts get
matplotlib's own."""
WIDTH, HIGH, LARGE = 10.0, 3.7, 10.5
"""Of the picture of a run: its width and a panel's height in inches, and the size of type."""


def drawing() -> ModuleType:
    """Return pyplot, set up to draw into files, or say how to install it."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - slow to import
    except ImportError:
        raise EbbflowError(
            "pictures need matplotlib, which is missing here: `pip install matplotlib`"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - the backend has to be chosen first

    return pyplot


def drawable(text: str, most: int = 24) -> str:
    r"""Return a user's text as matplotlib draws it: short, and no formula.

    >>> print(drawable("ward $1$"))
    ward \$1\$
    """
    return shortened(printable(text), most).replace("$", r"\$")


def accuracy_picture(view: RunView, path: Path) -> None:
    """Draw a run's scores over all rounds into a PNG file."""
    write_atomically(path, encoded(accuracy_figure(view), "png", dpi=150))


def accuracy_figure(view: RunView) -> RunFigure:
    """Return a run's scores over all rounds, in a panel for each algorithm.

    It is wide, for a page or a screen; `ebbflow.report.figures` draws those for papers.
    """
    measure = view.judge.title.removesuffix(" (%)")
    tests = "all" if view.config.evaluation == "all" else "each session's own"
    title = f"{drawn(view.name)}: {measure} on {tests} test samples"
    panels = curve_panels(view, WIDTH, HIGH)
    panels = [panel._replace(title=f"{title} ({panel.title})") for panel in panels]
    return stacked(panels, WIDTH, LARGE, titled=True)


def draw_curves(axis: Axes, curves: Sequence[Curve], method: str, *, linewidth: float) -> None:
    """Draw the mean of a method's curves, and a band from the lowest to the highest."""
    by_round = list(zip(*curves, strict=True))
    steps = range(1, len(by_round) + 1)
    means = [sum(values) / len(values) for values in by_round]
    (line,) = axis.plot(steps, means, label=method, color=COLOURS.get(method), linewidth=linewidth)
    least, most = [min(values) for values in by_round], [max(values) for values in by_round]
    axis.fill_between(steps, least, most, color=line.get_color(), alpha=0.15, linewidth=0)
