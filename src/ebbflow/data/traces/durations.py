"""Lengths of time as people write them: "90s", "2h30m", "1.5d"."""

from __future__ import annotations

import re
from decimal import Decimal

UNITS = {
    "w": Decimal(604_800),
    "d": Decimal(86_400),
    "h": Decimal(3_600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
    "us": Decimal("0.000001"),
}
"""Every unit and its seconds, the largest first; ``min`` is another name of ``m``."""
RULE = (
    "write numbers with the units w, d, h, m (or min), s, ms or us, the largest first, as in "
    '"1d", "90s", "1.5h" or "2h30m"'
)
LONGEST = 60
"""Characters of a duration; nobody writes more."""

_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]+)\s*")
_NUMBER = re.compile(r"\s*[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?\s*")


def seconds(text: str) -> float:
    """Return a duration in seconds, or raise a `ValueError` that says how to write one.

    >>> seconds("2h30m"), seconds("1.5h"), seconds("250ms")
    (9000.0, 5400.0, 0.25)
    """
    if len(text) > LONGEST:
        raise ValueError(f"a duration has at most {LONGEST} characters; {RULE}")
    if _NUMBER.fullmatch(text):
        raise ValueError(
            f"{text!r} has no unit; write a plain number without quotes, or one with a unit, as in "
            f'"{text.strip()}s"'
        )
    total, place, smallest = Decimal(0), 0, -1
    while place < len(text) or not text:
        part = _PART.match(text, place)
        if part is None:
            raise ValueError(f"{text!r} is no duration; {RULE}")
        number, name = part.groups()
        unit = "m" if name == "min" else name
        if unit not in UNITS:
            raise ValueError(f"{text!r} has the unknown unit {name!r}; {RULE}")
        rank = list(UNITS).index(unit)
        if rank <= smallest:
            raise ValueError(f"{text!r} does not name each unit once, the largest first; {RULE}")
        total, place, smallest = total + Decimal(number) * UNITS[unit], part.end(), rank
    if not 0 < float(total) < float("inf"):
        raise ValueError(f"{text!r} is no time at all; give more than zero")
    return float(total)


def in_seconds(value: float | str) -> float:
    """Return a plain number as it is, and a duration in seconds.

    >>> in_seconds(2.5), in_seconds("1m")
    (2.5, 60.0)
    """
    return seconds(value) if isinstance(value, str) else value


def about(length: float) -> str:
    """Return a number of seconds in the largest unit of which it has at least one, rounded.

    >>> about(86_400), about(5_400), about(100 / 3), about(0.0), about(2e-7)
    ('1d', '1.5h', '33.3s', '0s', '2e-07s')
    """
    for name, size in UNITS.items():
        if length >= float(size):
            count = length / float(size)
            return f"{count:.0f}{name}" if count >= 100 else f"{count:.3g}{name}"
    return f"{length:.3g}s"
