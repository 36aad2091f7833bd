"""Learning rates of a session's rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import is_stream

Rates = Callable[[int], tuple[float, ...]]
"""``rates(T)``: the rate of every round of a session of T rounds."""


def polynomial_rates(initial: float, floor: float, power: float, rounds: int) -> tuple[float, ...]:
    """Return eta for t = 0..T-1: (eta_0 - eta_min)(1 - t/T)^power + eta_min, eta_min = floor eta_0.

    >>> polynomial_rates(1.0, 0.5, 1.0, 2)
    (1.0, 0.75)
    """
    least = floor * initial
    return tuple((initial - least) * (1 - t / rounds) ** power + least for t in range(rounds))


def read_rates(path: Path, rounds: int) -> tuple[float, ...]:
    """Read a rate for every round: a JSON list, or one number per line."""
    try:
        if is_stream(path):
            raise EbbflowError(
                f'lr.file = "{path}" is a device or a pipe: name a file, which can be read again'
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EbbflowError(f'lr.file = "{path}" cannot be read ({error}): check the path') from None
    try:
        values = json.loads(text) if text.lstrip().startswith("[") else text.split()
        rates = tuple(float(value) for value in values)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise EbbflowError(
            f'lr.file = "{path}" should hold a JSON list of rates or one rate per line'
        ) from None
    if not all(0 < rate < math.inf for rate in rates):
        raise EbbflowError(f'lr.file = "{path}" holds a rate that is not a positive number')
    if len(rates) < rounds:
        raise EbbflowError(
            f'lr.file = "{path}" holds {len(rates)} rates and a session has {rounds} rounds: add '
            "rates or lower rounds"
        )
    return rates
