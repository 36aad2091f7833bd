"""What each method spent: seconds, joules and bytes, in every session and to reach a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ebbflow.analysis.cost import RoundCost, total
from ebbflow.analysis.metrics import Target
from ebbflow.analysis.run_costs import Reached, Usage, reached
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.spending import Spending
from ebbflow.report.page.plain import number, numbers, text
from ebbflow.runs.summary import transition

Amounts = list[float | None]
"""Seconds, joules, bytes down and bytes up."""


class CostFacts(TypedDict):
    """What a method spent in one session under one seed, by part."""

    algorithm: str
    method: str
    seed: int
    session: int
    transition: int | None
    training: Amounts
    probe: Amounts
    survey: Amounts


class TargetFacts(TypedDict):
    """What it took a method to reach a target at a transition, where a seed got there.

    Each is a mean over transitions and seeds that got there, of ``attempts``. ``pilot`` is the
    session's share of the pilot sessions.
    """

    algorithm: str
    method: str
    target: str
    attempts: int
    reached: int
    rounds: float | None
    training: Amounts
    probe: Amounts
    survey: Amounts
    pilot: Amounts


class CostSection(TypedDict):
    """The costs of a run, or else the reason why they are not known."""

    reason: str
    sessions: list[CostFacts]
    targets: list[TargetFacts]


def cost_section(view: RunView, spent: Spending, targets: Sequence[Target]) -> CostSection:
    """Return what a run spent so far."""
    return CostSection(
        reason=text(spent.reason, 900),
        sessions=[_cost_facts(usage, view.config.pilot.sessions) for usage in spent.usages],
        targets=[
            facts
            for target in targets
            if spent.usages
            for facts in _target_facts(reached(view.config, spent.usages, target), target)
        ],
    )


def _cost_facts(usage: Usage, pilot: int) -> CostFacts:
    return CostFacts(
        algorithm=usage.algorithm,
        method=usage.method,
        seed=usage.seed,
        session=usage.session,
        transition=transition(usage.session, pilot),
        training=_amounts([RoundCost(), *usage.rounds]),
        probe=_amounts([usage.probe]),
        survey=_amounts([usage.survey]),
    )


def _target_facts(results: Sequence[Reached], target: Target) -> list[TargetFacts]:
    grouped: dict[tuple[str, str], list[Reached]] = {}
    for result in results:
        if result.transition is not None:
            grouped.setdefault((result.algorithm, result.method), []).append(result)
    found: list[TargetFacts] = []
    for (algorithm, method), own in grouped.items():
        there = [result for result in own if result.rounds is not None]
        share = 1 / len(there) if there else 0.0
        found.append(
            TargetFacts(
                algorithm=algorithm,
                method=method,
                target=str(target),
                attempts=len(own),
                reached=len(there),
                rounds=number(share * sum(r.rounds or 0 for r in there), 4) if there else None,
                training=_amounts([r.training for r in there], share),
                probe=_amounts([r.probe for r in there], share),
                survey=_amounts([r.survey for r in there], share),
                pilot=_amounts([r.pilot for r in there], share),
            )
        )
    return found


def _amounts(costs: Sequence[RoundCost], share: float = 1.0) -> Amounts:
    return numbers(total([RoundCost(), *costs]).times(share), 4)
