"""Regret: how far a start is behind the best simple one, which is known only afterwards."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from learned_start.forking import ForkCell, ForkRow
from learned_start.rules import SIMPLE


class Lead(NamedTuple):
    """A start at one transition: its points of accuracy above the best simple start.

    ``noise`` is the standard deviation over repeats of the difference, if there are several;
    ``warned`` says whether the start warned.
    """

    cell: str
    session: int
    rule: str
    points: float
    noise: float | None
    warned: bool = False


def leads(cell: ForkCell, rows: Sequence[ForkRow]) -> list[Lead]:
    """Return the lead of every start at every transition; negative leads are regret."""
    found = []
    for session in sorted({row.session for row in rows}):
        here = [row for row in rows if row.session == session]
        repeats = sorted({row.repeat for row in here})
        windows = {(row.rule, row.repeat): row.window for row in here}
        best = [max(windows[rule, repeat] for rule in SIMPLE) for repeat in repeats]
        for rule in dict.fromkeys(row.rule for row in here):
            points = [
                windows[rule, repeat] - most for repeat, most in zip(repeats, best, strict=True)
            ]
            noise = statistics.stdev(points) if len(points) > 1 else None
            warned = any(row.warned for row in here if row.rule == rule)
            mean = statistics.fmean(points)
            found.append(Lead(cell.name, session, rule, mean, noise, warned))
    return found


class Summary(NamedTuple):
    """The leads of one start over many transitions."""

    rule: str
    transitions: int
    mean: float
    worst: float
    within_half: float
    beyond_one: int
    ahead: float


def summarise(leads_of: Iterable[Lead]) -> list[Summary]:
    """Return a summary for every start, in the order in which they first occur."""
    points: dict[str, list[float]] = {}
    for lead in leads_of:
        points.setdefault(lead.rule, []).append(lead.points)
    return [
        Summary(
            rule,
            len(values),
            statistics.fmean(values),
            min(values),
            sum(value >= -0.5 for value in values) / len(values),
            sum(value < -1 for value in values),
            sum(value > 0 for value in values) / len(values),
        )
        for rule, values in points.items()
    ]
