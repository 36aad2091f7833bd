"""Go on from the previous model, and distil from it what it knew: continual learning's answer."""

from __future__ import annotations

from ebbflow.core.types import Initialiser, ModelState, Past, Probe, Session, Start


def continuous() -> Initialiser:
    """Return the initialiser w^(s,1) = w^(s-1,T+1), with that model as the session's teacher.

    There is no teacher where there is no previous session: at P+1 after a fresh start.
    """

    def start(session: Session, carried: ModelState, past: Past, probe: Probe) -> Start:
        return Start(carried, teacher=carried if past.known else None)

    return start
