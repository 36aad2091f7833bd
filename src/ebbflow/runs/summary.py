"""The rows of `summary.json`: window accuracies by method, seed and session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ebbflow.config.resolved import Config
from ebbflow.runs.records import Round

WITH_ALPHA = frozenset({"dirichlet", "dirichlet_labels"})
"""Partitions whose shares are drawn with a concentration alpha."""
Curve = Sequence[float]
"""The accuracies of one session in percent, after rounds 1, 2, ..., T."""


class Key(NamedTuple):
    """The method, seed and session that a curve belongs to."""

    algorithm: str
    method: str
    seed: int
    session: int


def transition(session: int, pilot: int) -> int | None:
    """Return k for session P+2+k, the k-th that starts with a choice of models; else None.

    >>> [transition(s, 1) for s in range(1, 8)]
    [None, None, None, 1, 2, 3, 4]
    """
    number = session - pilot - 2
    return number if number >= 1 else None


def curves(rounds: Iterable[Round]) -> dict[Key, list[float]]:
    """Return the accuracies of every method, seed and session, in order of rounds."""
    points: dict[Key, list[tuple[int, float]]] = {}
    for r in rounds:
        key = Key(r.algorithm, r.method, r.seed, r.session)
        points.setdefault(key, []).append((r.round, r.accuracy))
    return {key: [accuracy for _, accuracy in sorted(points[key])] for key in sorted(points)}


def without_broken_sessions(
    rounds: Iterable[Round], ended: Iterable[Mapping[str, Any]]
) -> list[Round]:
    """Return the rounds without those of sessions that a method did not finish."""
    broken = {Key(e["algorithm"], e["method"], e["seed"], e["session"]) for e in ended}
    return [r for r in rounds if Key(r.algorithm, r.method, r.seed, r.session) not in broken]


def window_accuracy(accuracies: Curve, window: int) -> float:
    """Return the mean accuracy of a session's first ``window`` rounds (all, if it has fewer).

    >>> window_accuracy([10.0, 20.0, 90.0], 2)
    15.0
    """
    return math.fsum(accuracies[:window]) / min(window, len(accuracies))


def setting_of(config: Config) -> dict[str, Any]:
    """Return what all rows of a run have in common."""
    partition = config.partition
    return {
        "dataset": config.dataset,
        "partition": partition.kind,
        "overlap": partition.overlap,
        "alpha": partition.alpha if partition.kind in WITH_ALPHA else None,
    }


def summary_rows(
    rounds: Iterable[Round],
    tested: Iterable[Mapping[str, Any]] = (),
    *,
    windows: Sequence[int],
    pilot: int,
    setting: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return one row per algorithm, method, seed, session and window.

    ``tested`` are the events that say what the sessions' final models achieve on all test samples
    and device by device; runs of earlier versions have none. ``setting`` holds what all rows have
    in common: dataset, partition, overlap, alpha.
    """
    reached = {Key(e["algorithm"], e["method"], e["seed"], e["session"]): e for e in tested}
    return [
        {
            **setting,
            **key._asdict(),
            "transition": transition(key.session, pilot),
            "window": window,
            "accuracy": window_accuracy(curve, window),
            "final": curve[-1],
            **_reached(reached.get(key)),
        }
        for key, curve in curves(rounds).items()
        for window in windows
    ]


def _reached(tested: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the part of a row that says what the session's final model achieves."""
    if tested is None:
        return {}
    by_device = {f"devices_{name}": value for name, value in tested.get("devices", {}).items()}
    return {"all_labels": tested["all"], **by_device}
