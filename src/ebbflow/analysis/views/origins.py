"""Where each session's start came from: the models that were mixed, and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ebbflow.analysis.views.run_view import Event, RunView
from ebbflow.runs.summary import Key

INITIAL, CARRIED, PILOT = "initial", "carried", "pilot"
"""The model before any training, the one that the session before ended with, the pilot model."""


class Origin(NamedTuple):
    """The parts that a start was mixed from, and how far past sessions were, where measured.

    A part is ``initial``, ``carried``, ``pilot``, or ``final s`` and ``start s``: the model that
    session s ended or began with.
    """

    key: Key
    parts: Mapping[str, float]
    distances: Mapping[int, float]


def origins(view: RunView) -> list[Origin]:
    """Return where every method's start came from in every session, in order."""
    return [
        Origin(
            key,
            _parts(view, key, event),
            {int(z): distance for z, distance in event["distances"].items()},
        )
        for key, event in sorted(view.starts.items())
    ]


def _parts(view: RunView, key: Key, event: Event) -> Mapping[str, float]:
    if event.get("mixture"):
        return dict(event["mixture"])
    if event["weights"]:
        return {f"final {z}": weight for z, weight in event["weights"].items()}
    pilot = view.config.pilot
    fresh = key.session == 1 or (key.session == pilot.sessions + 1 and not pilot.carry_over)
    return {INITIAL if fresh else CARRIED: 1.0}


def described(part: str) -> str:
    """Return what a part of a start is, in words.

    >>> described("final 3"), described("carried")
    ('the final model of session 3', 'the model carried over')
    """
    kind, _, session = part.partition(" ")
    if kind in ("final", "start") and session:
        return f"the {'final' if kind == 'final' else 'starting'} model of session {session}"
    known = {CARRIED: "the model carried over", INITIAL: "the initial model"}
    return known.get(part, "the pilot model" if part == PILOT else part)
