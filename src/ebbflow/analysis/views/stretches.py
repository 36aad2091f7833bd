"""Curves, cut where sessions meet: each session has test samples of its own.

A line across such a border would join accuracies on different tests, so none is ever drawn. Methods
that have done the same so far are one line: there was no choice yet.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ebbflow.analysis.views.run_view import RunView
from ebbflow.runs.records import Round
from ebbflow.runs.summary import Key, transition


class SessionSpan(NamedTuple):
    """A session's place on the axis of rounds: it follows ``before`` rounds of other sessions.

    Where seeds differ, the longest session counts.
    """

    session: int
    before: int
    rounds: int
    transition: int | None


class Stretch(NamedTuple):
    """What one method, or several that coincide, achieved in one session, by seed.

    ``starts`` are the accuracies before the first round, and nan where they are not known;
    ``curves`` those after each round.
    """

    algorithm: str
    methods: tuple[str, ...]
    session: int
    seeds: tuple[int, ...]
    starts: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]

    def points(self) -> Iterator[tuple[int, float, float, float]]:
        """Yield round, mean, lowest and highest accuracy; round 0 is the start, where known."""
        begun = [start for start in self.starts if not math.isnan(start)]
        if len(begun) == len(self.seeds):
            yield 0, statistics.fmean(begun), min(begun), max(begun)
        for t in range(max(map(len, self.curves), default=0)):
            there = [curve[t] for curve in self.curves if len(curve) > t]
            yield t + 1, statistics.fmean(there), min(there), max(there)


def spans(view: RunView, algorithm: str | None = None) -> list[SessionSpan]:
    """Return the sessions of a run side by side on one axis of rounds."""
    lengths: dict[int, int] = {}
    for key, event in view.starts.items():
        if algorithm in (None, key.algorithm) and "rounds" in event:
            lengths[key.session] = max(lengths.get(key.session, 0), event["rounds"])
    for r in view.rounds:
        if algorithm in (None, r.algorithm):
            lengths[r.session] = max(lengths.get(r.session, 0), r.round)
    found, before = [], 0
    for session, rounds in sorted(lengths.items()):
        found.append(
            SessionSpan(session, before, rounds, transition(session, view.config.pilot.sessions))
        )
        before += rounds
    return found


def stretches(
    view: RunView, algorithm: str, seeds: Sequence[int] | None = None, *, together: bool = True
) -> list[Stretch]:
    """Return the stretches of an algorithm, by session, over all or some seeds.

    ``together`` makes one stretch of methods whose accuracies and losses are the same in every
    round under every seed; otherwise each method has its own.
    """
    chosen = view.seeds if seeds is None else tuple(seeds)
    by_key: dict[Key, list[Round]] = {}
    for r in view.rounds:
        if r.algorithm == algorithm and r.seed in chosen:
            by_key.setdefault(Key(algorithm, r.method, r.seed, r.session), []).append(r)
    found = []
    for session in sorted({key.session for key in by_key}):
        groups: dict[object, list[str]] = {}
        for method in view.methods:
            own = {
                seed: sorted(by_key[key], key=lambda r: r.round)
                for seed in chosen
                if (key := Key(algorithm, method, seed, session)) in by_key
            }
            done = tuple((s, r.round, r.accuracy, r.loss) for s, c in own.items() for r in c)
            if own:
                groups.setdefault(done if together else method, []).append(method)
        for methods in groups.values():
            keys = [k for s in chosen if (k := Key(algorithm, methods[0], s, session)) in by_key]
            curves = [sorted(by_key[key], key=lambda r: r.round) for key in keys]
            found.append(
                Stretch(
                    algorithm,
                    tuple(methods),
                    session,
                    tuple(key.seed for key in keys),
                    tuple(_start(view, key) for key in keys),
                    tuple(tuple(r.accuracy for r in curve) for curve in curves),
                )
            )
    return found


def _start(view: RunView, key: Key) -> float:
    event = view.starts.get(key)
    return math.nan if event is None else float(event["accuracy"])


def undecided(view: RunView, algorithm: str) -> list[int]:
    """Return the sessions in which all methods did the same, so that there was no choice yet."""
    found: dict[int, list[Stretch]] = {}
    for stretch in stretches(view, algorithm):
        found.setdefault(stretch.session, []).append(stretch)
    return [
        session
        for session, own in found.items()
        if len(own) == 1 and len(own[0].methods) == len(view.methods) > 1
    ]
