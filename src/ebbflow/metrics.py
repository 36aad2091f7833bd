"""Metrics as pure functions of records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from ebbflow.records import Round


def transition(session: int, pilot: int) -> int | None:
    """Return k for the start of session P+2+k, the k-th at which there is a choice; else None.

    >>> [transition(s, 1) for s in range(1, 8)]
    [None, None, None, 1, 2, 3, 4]
    """
    number = session - pilot - 2
    return number if number >= 1 else None


def window_accuracy(accuracies: Sequence[float], window: int) -> float:
    """Return the mean accuracy of a session's first ``window`` rounds (all, where it has fewer).

    >>> window_accuracy([10.0, 20.0, 90.0], 2)
    15.0
    """
    return math.fsum(accuracies[:window]) / min(window, len(accuracies))


def summary_rows(
    rounds: Iterable[Round], *, windows: Sequence[int], pilot: int, setting: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return one row per algorithm, method, seed, session and window.

    ``setting`` holds what all rows share: dataset, partition, overlap, alpha.
    """
    curves: dict[tuple[str, str, int, int], list[float]] = {}
    for r in rounds:
        curves.setdefault((r.algorithm, r.method, r.seed, r.session), []).append(r.accuracy)
    return [
        {
            **setting,
            "algorithm": algorithm,
            "method": method,
            "seed": seed,
            "session": session,
            "transition": transition(session, pilot),
            "window": window,
            "accuracy": window_accuracy(curve, window),
        }
        for (algorithm, method, seed, session), curve in sorted(curves.items())
        for window in windows
    ]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 1; nan for a single value).

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values), deviation
