"""What all figures share: their width, type, dashes and markers, and how they become files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import Judge
from ebbflow.core.names import printable, shortened
from ebbflow.report.colours import TOGETHER, Look, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ebbflow.report.figures.run_figure import RunFigure

WIDTHS = {"column": 3.5, "page": 7.16}
"""Of a column and of a page of a journal with two columns, in inches."""
LEAST, MOST = 2.0, 30.0
FONT = "DejaVu Sans"
"""It comes with matplotlib, so that figures are the same everywhere."""
SIZE = 8.0
"""The size of type in points; that of ticks and legends is one less."""
SHADE = "#ececec"
"""Behind sessions in which there was no choice yet."""
UNDECIDED = "no choice yet"
"""What is said where all methods coincide."""

DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (4.5, 1.6)),
    "dot": (0, (1.2, 1.3)),
    "dashdot": (0, (4.5, 1.4, 1.2, 1.4)),
    "longdash": (0, (8.0, 1.8)),
    "longdashdot": (0, (8.0, 1.6, 1.2, 1.6)),
}
MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-down": "v",
    "cross": "P",
    "x": "X",
    "star": "*",
    "hexagon": "h",
}
DATES: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {},
}
"""What a file would say about when it was made; the same run gives the same bytes."""


def inches(text: str) -> float:
    """Return the width that a user asked for: of a column, of a page, or a number of inches.

    >>> inches("column"), inches("5")
    (3.5, 5.0)
    """
    if text in WIDTHS:
        return WIDTHS[text]
    try:
        width = float(text)
    except ValueError:
        width = 0.0
    if not LEAST <= width <= MOST:
        raise EbbflowError(
            f"--width {text!r} is no width: write column, page, or inches from {LEAST:g} to "
            f"{MOST:g}, as in --width 5"
        )
    return width


@contextmanager
def styled(size: float = SIZE) -> Iterator[None]:
    """Draw in our type and lines; fonts are embedded in files, and nothing depends on the date."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - slow to import
    except ImportError:
        raise EbbflowError(
            "pictures need matplotlib, which is missing here: `pip install matplotlib`"
        ) from None
    small, thin = size - 1, 0.075 * size
    settings: dict[Any, Any] = {
        "font.family": FONT,
        "font.size": size,
        "axes.labelsize": size,
        "axes.titlesize": size,
        "axes.linewidth": thin,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.labelpad": 2.5,
        "axes.titlepad": 3.5,
        "axes.axisbelow": True,
        "figure.titlesize": size,
        "figure.constrained_layout.h_pad": 0.03,
        "figure.constrained_layout.w_pad": 0.03,
        "grid.color": "#e2e2e2",
        "grid.linewidth": thin,
        "hatch.linewidth": thin,
        "legend.fontsize": small,
        "legend.frameon": False,
        "legend.handlelength": 2.2,
        "legend.columnspacing": 1.4,
        "legend.handletextpad": 0.5,
        "legend.labelspacing": 0.35,
        "legend.borderaxespad": 0.2,
        "lines.linewidth": 0.15 * size,
        "lines.markersize": 0.45 * size,
        "xtick.labelsize": small,
        "ytick.labelsize": small,
        "xtick.major.width": thin,
        "ytick.major.width": thin,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "xtick.major.pad": 2.0,
        "ytick.major.pad": 2.0,
        "text.parse_math": False,  # names are no formulas
        "text.usetex": False,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.hashsalt": "ebbflow",
    }
    with mpl.rc_context():
        mpl.rcdefaults()  # what a user's own settings say must not change a figure
        mpl.rcParams.update(settings)
        yield


def empty(width: float, height: float) -> RunFigure:
    """Return an empty figure that belongs to no window and needs no closing."""
    from ebbflow.report.figures.run_figure import RunFigure  # noqa: PLC0415 - slow to import

    return RunFigure(figsize=(width, height), layout="constrained")


def encoded(figure: RunFigure, kind: str, dpi: float = 300) -> bytes:
    """Return a figure as the content of a file: pdf, svg or png."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=dpi)
    return file.getvalue()


def save(figure: RunFigure, path: Path, dpi: float = 300) -> None:
    """Write a figure to a file, whose ending says how."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in DATES:
        raise EbbflowError(f"{path} is no picture of ours: end its name in .pdf, .svg or .png")
    path.write_bytes(encoded(figure, kind, dpi))


# --- names and lines -----------------------------------------------------------------------------


def drawn(text: str, most: int = 24) -> str:
    r"""Return a user's text as a figure shows it: on one line, short, and of letters that exist.

    >>> print(drawn("ward\n1"))
    ward\n1
    """
    return shortened("".join(map(_drawn, printable(text))), most)


@cache
def _drawn(character: str) -> str:
    """Return a character, or its number if the type has none."""
    if character.isascii():
        return character
    from matplotlib.font_manager import findfont, get_font  # noqa: PLC0415 - slow to import

    known = get_font(findfont(FONT)).get_char_index(ord(character))
    return character if known else f"U+{ord(character):04X}"


def line_style(look: Look) -> dict[str, Any]:
    """Return colour and dashes as matplotlib takes them."""
    return {"color": look.light, "linestyle": DASHES[look.dash]}


def group_look(methods: Sequence[str], known: Sequence[str]) -> Look:
    """Return how a method looks, or several that coincide."""
    return looks(known)[methods[0]] if len(methods) == 1 else TOGETHER


def group_name(methods: Sequence[str], known: Sequence[str]) -> str:
    """Return what the legend calls a method, or several that coincide.

    >>> group_name(["a", "b"], ["a", "b"]), group_name(["a", "b"], ["a", "b", "c"])
    ('no choice yet', 'a = b')
    """
    if len(methods) == len(known) > 1:
        return UNDECIDED
    return " = ".join(methods)


def score_axis(axis: Axes, judge: Judge, values: Sequence[float]) -> None:
    """Label the axis of scores, and choose its ends."""
    axis.set_ylabel(judge.title if judge.higher else f"{judge.title} (less is better)")
    if judge.percent and values:
        least = min(values)
        # Where all is well above the ground, the ground is far below.
        axis.set_ylim(0 if least < 40 else 10 * ((least - 1) // 10), 101)
    axis.grid(axis="y")


def band_note(seeds: int) -> str:
    """Return what the bands are.

    >>> band_note(3)
    'band: lowest to highest of 3 seeds'
    """
    return f"band: lowest to highest of {seeds} seeds"
