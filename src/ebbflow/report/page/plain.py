"""Numbers and texts as the page takes them: short, finite, and harmless."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ebbflow.core.names import printable, shortened

LONGEST = 160
"""Characters of a name that are shown; the middle of longer ones is left out."""


def number(value: float | None, digits: int = 5) -> float | None:
    """Return a number with so many digits; JSON has neither infinity nor nan, so these are None.

    >>> number(81.256789), number(float("inf")), number(0.000123456)
    (81.257, None, 0.00012346)
    """
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    # The largest numbers are rounded to infinity.
    return rounded if math.isfinite(rounded) else float(value)


def numbers(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Return each of several numbers with so many digits."""
    return [number(value, digits) for value in values]


def text(written: str, most: int = LONGEST) -> str:
    r"""Return a user's text on one line, without signs that are invisible or change what is seen.

    >>> print(text("a\u202eb"))
    a\u202eb
    """
    return shortened(printable(written), most)
