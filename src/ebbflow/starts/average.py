"""Start from the plain average of the method's own past sessions P+1..s-1."""

from __future__ import annotations

from ebbflow.core import vector
from ebbflow.core.types import Initialiser, ModelState, Past, Probe, Session, Start


def average() -> Initialiser:
    """Return the initialiser w^(s,1) = sum_z w^(z,T+1) / (s-P-1); carried over without a past."""

    def start(session: Session, carried: ModelState, past: Past, probe: Probe) -> Start:
        if not past.entries:
            return Start(carried)
        weight = 1 / len(past.entries)
        model = vector.mix((entry.model for entry in past.entries), [weight] * len(past.entries))
        return Start(model, {entry.session: weight for entry in past.entries})

    return start
