"""Start from the previous session's final model, as FL without sessions does."""

from __future__ import annotations

from ebbflow.core.start import Start, StartingPoint


def previous() -> Start:
    """Return the start w^(s,1) = w^(s-1,T+1)."""
    return Start(lambda situation: StartingPoint(situation.carried))
