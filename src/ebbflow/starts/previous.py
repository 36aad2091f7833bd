"""Start from the previous session's final model: what FL without sessions does."""

from __future__ import annotations

from ebbflow.core.types import Initialiser, ModelState, Past, Probe, Session, Start


def previous() -> Initialiser:
    """Return the initialiser w^(s,1) = w^(s-1,T+1)."""

    def start(session: Session, carried: ModelState, past: Past, probe: Probe) -> Start:
        return Start(carried)

    return start
