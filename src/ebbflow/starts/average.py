"""Start from the plain average of the method's own past sessions P+1..s-1."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.stacks import is_long
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.types import ModelState, PastSession


def average() -> Start:
    """Return the start w^(s,1) = sum_z w^(z,T+1) / (s-P-1), over the sessions z = P+1..s-1.

    Only sessions that were kept count; without any, the carried-over model is used.
    """
    sums = _RunningSums()

    def choose(situation: Situation) -> StartingPoint:
        past = situation.past
        if not past:
            return StartingPoint(situation.carried)
        weight = 1 / len(past)
        if not is_long(past):
            model = vector.mix((session.model for session in past), [weight] * len(past))
        else:
            model = sums.mean(past)
        return StartingPoint(model, {session.number: weight for session in past})

    return Start(choose)


class _RunningSums:
    """The sums of all past models in double precision, to which every session adds its own.

    A thousand models need not be read again for the sake of one. Additions are in the order of the
    sessions, so that a run that was interrupted comes to the same sums.
    """

    def __init__(self) -> None:
        self._added: list[PastSession] = []
        self._sums: list[Tensor] = []
        self._kinds: list[torch.dtype] = []

    def mean(self, past: Sequence[PastSession]) -> ModelState:
        """Return the mean of the final models."""
        grown = len(self._added) <= len(past)
        if not grown or any(map(is_not, self._added, past)):
            # Some are no longer kept; subtracting them would round differently.
            self._added, self._sums = [], []
        for session in past[len(self._added) :]:
            model = session.model
            if self._sums:
                for total, more in zip(self._sums, model, strict=True):
                    total.add_(more)
            else:
                self._sums = [part.to(torch.float64, copy=True) for part in model]
                self._kinds = [part.dtype for part in model]
            self._added.append(session)
        pairs = zip(self._sums, self._kinds, strict=True)
        return ModelState(*((total / len(past)).to(kind) for total, kind in pairs))
