"""The starts that a fork compares: simple ones, the paper's, and the learned one with variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.starts import STARTS
from learned_start.disturbed import ATTACKS, Attack, disturbed

SIMPLE = ("previous", "average", "warm_start", "nearest", "initial")
"""The starts whose best, known only afterwards, regret is measured against."""
LEARNED = "learned"


@dataclass(frozen=True)
class Rule:
    """A way to start, by name: a registered start, its parameters, and what it is denied.

    ``without`` may name ``starts`` (past starting models) or ``pilot``; with an ``attack``, some of
    the asked devices answer wrongly.
    """

    name: str
    start: str = LEARNED
    parameters: tuple[tuple[str, Any], ...] = ()
    without: str | None = None
    attack: Attack | None = None

    def build(self, usual: Mapping[str, Mapping[str, Any]]) -> Start:
        """Return the start, with the usual parameters of its kind under its own."""
        if self.start == "initial":
            return Start(lambda situation: StartingPoint(situation.initial))
        parameters = {**usual.get(self.start, {}), **dict(self.parameters)}
        start = STARTS[self.start].build(parameters)
        if self.attack is not None:
            start = start._replace(choose=disturbed(start.choose, self.attack))
        if self.without is not None:
            start = start._replace(choose=DENIALS[self.without](start.choose))
        return start


def rule(name: str, start: str = LEARNED, without: str | None = None, **parameters: Any) -> Rule:
    """Return a rule with parameters."""
    return Rule(name, start, tuple(sorted(parameters.items())), without)


MAIN_RULES = (
    rule("previous", "previous"),
    rule("average", "average"),
    rule("warm_start", "warm_start"),
    rule("nearest", "warm_start", scale=float("inf")),
    rule("initial", "initial"),
    rule(LEARNED),
)

SENSITIVITY_RULES = (
    *MAIN_RULES,
    *(rule(f"{count} devices", devices=count) for count in (5, 10)),
    *(rule(f"{count} samples", samples=count) for count in (8, 16)),
    *(rule(f"{count} models", models=count) for count in (2, 4, 8, 12)),
    rule("without past starts", without="starts"),
    rule("without the pilot", without="pilot"),
    rule("without negative weights", negative=False),
    rule("labels as they come", balance=0.0),
    *(rule(f"margin {margin:g}", margin=margin) for margin in (0.5, 1.0)),
    *(rule(how, compression=how) for how in ("fp32", "int8")),
)

MALICE_RULES = (*MAIN_RULES, *(Rule(attack, attack=attack) for attack in ATTACKS))

# --- denials -------------------------------------------------------------------------------------

Choose = Callable[[Situation], StartingPoint]


def _without_starts(choose: Choose) -> Choose:
    def denied(situation: Situation) -> StartingPoint:
        past = tuple(replace(session, start=None) for session in situation.past)
        return choose(replace(situation, past=past))

    return denied


def _without_pilot(choose: Choose) -> Choose:
    return lambda situation: choose(replace(situation, pilot=situation.carried))


DENIALS = {
    "starts": _without_starts,
    "pilot": _without_pilot,
}
