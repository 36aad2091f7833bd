"""Go on from the previous model, and distil from it what it knew: continual learning's answer."""

from __future__ import annotations

import torch

from ebbflow.core.types import Initialiser, ModelState, Past, Probe, Session, Start


def continuous(uniform: bool = False) -> Initialiser:
    """Return the initialiser w^(s,1) = w^(s-1,T+1), with that model as the session's teacher.

    Where there is no previous session, at P+1 after a fresh start, nobody teaches; or, if
    ``uniform``, a network of zeros does, to which all labels are equally likely.
    """

    def start(session: Session, carried: ModelState, past: Past, probe: Probe) -> Start:
        if past.known:
            return Start(carried, teacher=carried)
        blank = ModelState(torch.zeros_like(carried.theta), torch.zeros_like(carried.buffers))
        return Start(carried, teacher=blank if uniform else None)

    return start
