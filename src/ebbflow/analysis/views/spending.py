"""What each method spent in each session: seconds and joules on the air, and bytes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from ebbflow.analysis.cost import RoundCost, total
from ebbflow.analysis.run_costs import Usage, model_size, usages
from ebbflow.analysis.views.run_view import RunView
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.runs.summary import transition

PARTS = ("training", "probe", "survey")
"""What a session spends on: its rounds, the warm start's probe, the learned start's survey."""


class Spending(NamedTuple):
    """What was spent, or else the reason why that is not known."""

    usages: Sequence[Usage]
    reason: str = ""


class SessionCost(NamedTuple):
    """What a method spent on one part of one session, as a mean over seeds.

    ``seconds`` is the latency, ``joules`` the energy of all devices; bytes are those of all
    devices, so that what the server sends counts once for each of them.
    """

    algorithm: str
    method: str
    session: int
    part: str
    seconds: float
    joules: float
    bytes_down: float
    bytes_up: float


def spending(view: RunView) -> Spending:
    """Return what a run spent so far, by its records and ``[wireless]``."""
    if not view.rounds:
        return Spending((), "no round is finished yet")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EbbflowWarning)
            size = model_size(view.config)
            return Spending(usages(view.config, size, view.rounds, view.events))
    except EbbflowError as error:
        return Spending((), str(error))


def session_costs(spent: Sequence[Usage]) -> list[SessionCost]:
    """Return the mean costs over seeds, by algorithm, method, session and part."""
    grouped: dict[tuple[str, str, int], list[Usage]] = {}
    for usage in spent:
        grouped.setdefault((usage.algorithm, usage.method, usage.session), []).append(usage)
    found = []
    for key, own in grouped.items():
        for part in PARTS:
            cost = total([RoundCost(), *(_part(usage, part) for usage in own)])
            mean = cost.times(1 / len(own))
            if part == "training" or mean != RoundCost():
                found.append(SessionCost(*key, part, mean.latency, mean.energy, mean.down, mean.up))
    return found


def _part(usage: Usage, part: str) -> RoundCost:
    if part == "training":
        return total([RoundCost(), *usage.rounds])
    return usage.probe if part == "probe" else usage.survey


def mean_session(spent: Sequence[Usage], algorithm: str, method: str, pilot: int) -> RoundCost:
    """Return what a session with a choice cost a method on average, with probe and survey."""
    own = [
        total([usage.probe, usage.survey, *usage.rounds])
        for usage in spent
        if (usage.algorithm, usage.method) == (algorithm, method)
        and transition(usage.session, pilot) is not None
    ]
    return total([RoundCost(), *own]).times(1 / len(own)) if own else RoundCost()
