"""Accuracy curves, and what all pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import JUDGES, Judge
from ebbflow.core.names import printable, shortened
from ebbflow.runs.records import Round
from ebbflow.runs.summary import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "learned": "#000000",
    "warm_start": "#0072b2",
    "previous": "#d55e00",
    "average": "#009e73",
    "continuous": "#cc79a7",
}
"""Our starts in colours that differ for colour-blind readers and in grey; other starts get
matplotlib's own."""


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


def accuracy_picture(
    rounds: Sequence[Round], path: Path, title: str, judge: Judge = JUDGES["accuracy"]
) -> None:
    """Draw accuracy over all rounds with the session boundaries, in a panel for each algorithm.

    With another ``judge``, that measure is drawn.

    Lines are means over seeds; bands span from the lowest to the highest seed.
    """
    pyplot = drawing()
    algorithms = list(dict.fromkeys(r.algorithm for r in rounds))
    figure, axes = pyplot.subplots(
        len(algorithms), 1, figsize=(10, 4 * len(algorithms)), squeeze=False, layout="constrained"
    )
    for axis, algorithm in zip(axes[:, 0], algorithms, strict=True):
        own = [r for r in rounds if r.algorithm == algorithm]
        for method in dict.fromkeys(r.method for r in own):
            curves = _curves([r for r in own if r.method == method])
            length = min(len(curve) for curve in curves)
            draw_curves(axis, [curve[:length] for curve in curves], method, linewidth=1.5)
        for session, boundary in _boundaries(own):
            axis.axvline(boundary + 0.5, color="0.75", linewidth=0.8, zorder=0)
            axis.annotate(
                f"session {session}",
                (boundary + 1, 1.01),
                xycoords=("data", "axes fraction"),
                fontsize=8,
                color="0.4",
            )
        axis.set(xlabel="round", ylabel=judge.title)
        if judge.percent:
            axis.set(ylim=(0, 100))
        axis.set_title(f"{title}, {algorithm}", pad=18, fontsize=11, loc="left")
        axis.margins(x=0.01)
        axis.legend(loc="lower right" if judge.higher else "upper right", frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def draw_curves(axis: Axes, curves: Sequence[Curve], method: str, *, linewidth: float) -> None:
    """Draw the mean of a method's curves, and a band from the lowest to the highest."""
    by_round = list(zip(*curves, strict=True))
    steps = range(1, len(by_round) + 1)
    means = [sum(values) / len(values) for values in by_round]
    (line,) = axis.plot(steps, means, label=method, color=COLOURS.get(method), linewidth=linewidth)
    least, most = [min(values) for values in by_round], [max(values) for values in by_round]
    axis.fill_between(steps, least, most, color=line.get_color(), alpha=0.15, linewidth=0)


def _curves(rounds: Sequence[Round]) -> list[list[float]]:
    """Return a method's accuracies in order, one list per seed."""
    curves: dict[int, list[float]] = {}
    for r in sorted(rounds, key=lambda r: (r.seed, r.session, r.round)):
        curves.setdefault(r.seed, []).append(r.accuracy)
    return list(curves.values())


def _boundaries(rounds: Sequence[Round]) -> list[tuple[int, int]]:
    """Return each session with the number of rounds before it, under the first seed."""
    first = min(r.seed for r in rounds)
    method = rounds[0].method
    lengths: dict[int, int] = {}
    for r in rounds:
        if r.seed == first and r.method == method:
            lengths[r.session] = max(lengths.get(r.session, 0), r.round)
    before, boundaries = 0, []
    for session, length in sorted(lengths.items()):
        boundaries.append((session, before))
        before += length
    return boundaries
