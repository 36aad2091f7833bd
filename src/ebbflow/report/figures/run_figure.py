"""A figure that belongs to no window. Importing this imports matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ebbflow.report.figures.style import DATES, encoded, styled


class RunFigure(Figure):
    """A figure that notebooks show, and that needs no closing."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure as `Figure.savefig` does: with its fonts, and without a date."""
        kind = options.get("format") or Path(str(fname)).suffix.lower().removeprefix(".")
        if kind in DATES:
            options = {"metadata": DATES[kind], **options}
        with styled():
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        """Return the figure as a notebook shows it."""
        return encoded(self, "png", dpi=150)
