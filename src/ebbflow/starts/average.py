"""Start from the plain average of the method's own past sessions P+1..s-1."""

from __future__ import annotations

from ebbflow.core import vector
from ebbflow.core.start import Situation, Start, StartingPoint


def average() -> Start:
    """Return the start w^(s,1) = sum_z w^(z,T+1) / (s-P-1), over the sessions z = P+1..s-1.

    Only sessions that were kept count; without any, the carried-over model is used.
    """

    def choose(situation: Situation) -> StartingPoint:
        past = situation.past
        if not past:
            return StartingPoint(situation.carried)
        weight = 1 / len(past)
        model = vector.mix((session.model for session in past), [weight] * len(past))
        return StartingPoint(model, {session.number: weight for session in past})

    return Start(choose)
