"""Seeds as people write them: numbers and ranges."""

from __future__ import annotations

import re

from ebbflow.core.errors import EbbflowError

MOST_SEEDS = 1000
"""As many as a configuration may name: a longer range is most likely a slip."""
_RANGE = re.compile(r"\s*([0-9]{1,18})\s*-\s*([0-9]{1,18})\s*")


def seeds(text: str, place: str = "--seeds") -> list[int]:
    """Return seeds that are written as numbers and ranges with commas between them.

    >>> seeds("7,1-3")
    [7, 1, 2, 3]
    """
    found: list[int] = []
    for part in text.split(","):
        bounds = _RANGE.fullmatch(part)
        try:
            first, last = map(int, bounds.groups()) if bounds else (int(part), int(part))
        except ValueError:
            raise no_seeds(text, place) from None
        if last < first:
            raise EbbflowError(
                f"{place} {part.strip()} ends before it begins: write {last}-{first}"
            )
        if last - first >= MOST_SEEDS:
            raise EbbflowError(
                f"{place} {part.strip()} are {last - first + 1:,} seeds: a run has at most "
                f"{MOST_SEEDS}"
            )
        found += range(first, last + 1)
    return found


def no_seeds(text: str, place: str) -> EbbflowError:
    """Return the error for a text that names no seeds."""
    return EbbflowError(
        f"{place} {text!r} are no seeds: write whole numbers, as in {place} 100,200 or {place} 1-5"
    )
