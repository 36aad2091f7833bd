"""The starts that forks compare: each can be built, and is what its name says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ebbflow.core.start import Situation, Start, nobody_to_ask
from ebbflow.core.survey import Panel, SurveyPlan
from ebbflow.core.types import Layout, ModelState, PastSession
from ebbflow.starts import STARTS
from learned_start.disturbed import ATTACKS
from learned_start.rules import (
    LEARNED,
    MAIN_RULES,
    MALICE_RULES,
    SENSITIVITY_RULES,
    SIMPLE,
    Rule,
    rule,
)
from tests.learned_start.made import tiny
from tests.starts.panels import CurvePanel, quadratic

LAYOUT = Layout(("weight",), ((5, 6),))
RULES = list(dict.fromkeys((*MAIN_RULES, *SENSITIVITY_RULES, *MALICE_RULES)))
DEVICES = 20


def vector(seed: int) -> Tensor:
    return torch.randn(30, generator=torch.Generator().manual_seed(seed))


def model(seed: int) -> ModelState:
    return ModelState(vector(seed), torch.zeros(0))


INITIAL, PILOT, CARRIED = model(1), model(2), model(104)
MOVED = vector(3)
"""What the probe adds to the pilot: the session's signature."""


def past(number: int, away: float) -> PastSession:
    """Return a session whose signature is so far away from this one's."""
    signature = MOVED + away * vector(300 + number)
    return PastSession(number, model(100 + number), signature, model(200 + number), (number,))


class Asked:
    """A survey that notes which models it sends; devices want the carried model, and other ones."""

    def __init__(self) -> None:
        self.models: list[ModelState] = []

    def __call__(self, models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
        self.models += models
        target = (CARRIED.theta + model(102).theta) / 2 + 0.1 * vector(9)
        away = torch.stack([each.theta - target for each in models]).double().numpy()
        groups = [quadratic(1.0, away[:, 0] * 0, away @ away.T) for _ in range(DEVICES)]
        return CurvePanel(groups)

    def sent(self, one: ModelState) -> bool:
        return any(torch.equal(one.theta, each.theta) for each in self.models)


def situation(asked: Asked | None = None) -> Situation:
    """Return the beginning of session 5, which is most like session 3."""
    return Situation(
        session=5,
        carried=CARRIED,
        goes_on=True,
        known_labels=(),
        pilot=PILOT,
        initial=INITIAL,
        past=(past(2, 0.5), past(3, 0.1), past(4, 1.0)),
        layout=LAYOUT,
        probe=lambda begun: begun._replace(theta=begun.theta + MOVED),
        survey=asked or Asked(),
        devices=(2, 3, 9),
    )


def named(name: str) -> Rule:
    (found,) = (each for each in RULES if each.name == name)
    return found


# --- every rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize("each", RULES, ids=lambda each: each.name)
def test_every_rule_gives_a_start_that_chooses_a_model(each: Rule) -> None:
    start = each.build(tiny().setting.config.parameters)
    assert isinstance(start, Start)
    point = start.choose(situation())
    assert point.model.theta.shape == (30,)
    assert torch.isfinite(point.model.theta).all()


@pytest.mark.parametrize("rules", [MAIN_RULES, SENSITIVITY_RULES, MALICE_RULES])
def test_every_set_of_rules_has_what_regret_is_measured_against(rules: Sequence[Rule]) -> None:
    names = [each.name for each in rules]
    assert names[: len(SIMPLE) + 1] == [*SIMPLE, LEARNED]
    assert len(set(names)) == len(names)


def test_variants_differ_from_the_learned_start_in_one_thing() -> None:
    (learned,) = (each for each in MAIN_RULES if each.name == LEARNED)
    assert learned == Rule(LEARNED)
    for each in SENSITIVITY_RULES[len(MAIN_RULES) :]:
        assert each.start == LEARNED and each.attack is None
        assert len(each.parameters) + (each.without is not None) == 1, each.name


def test_every_kind_of_wrong_answers_is_a_rule() -> None:
    extra = MALICE_RULES[len(MAIN_RULES) :]
    assert extra == tuple(Rule(attack, attack=attack) for attack in ATTACKS)


# --- what they are -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["previous", "average", "warm_start"])
def test_simple_starts_are_the_registered_ones(name: str) -> None:
    ours = named(name).build({}).choose(situation())
    theirs = STARTS[name].build({}).choose(situation())
    assert torch.equal(ours.model.theta, theirs.model.theta)
    assert ours.weights == theirs.weights


def test_the_nearest_is_the_warm_start_with_an_infinite_scale() -> None:
    # The data set's own R is overruled; the distance is left as it is.
    usual = {"warm_start": {"scale": 10.0, "distance": "per_tensor"}}
    ours = named("nearest").build(usual).choose(situation())
    scale = {"scale": float("inf"), "distance": "per_tensor"}
    theirs = STARTS["warm_start"].build(scale).choose(situation())
    assert torch.equal(ours.model.theta, theirs.model.theta)
    assert ours.weights == theirs.weights == {2: 0.0, 3: 1.0, 4: 0.0}
    assert torch.equal(ours.model.theta, model(103).theta)
    mixed = named("warm_start").build(usual).choose(situation()).weights
    assert 0 < mixed[4] < mixed[2] < mixed[3] < 1


def test_usual_parameters_hold_for_the_start_that_they_are_named_for() -> None:
    def weights(usual: dict[str, dict[str, Any]]) -> list[float]:
        return list(named("warm_start").build(usual).choose(situation()).weights.values())

    assert weights({"warm_start": {"scale": 0.0}}) == pytest.approx([1 / 3] * 3)
    assert weights({"learned": {"models": 2}}) == weights({})


def test_the_initial_start_is_the_initial_model_and_asks_nobody() -> None:
    def probe(begun: ModelState) -> ModelState:
        raise AssertionError("it probes")

    alone = replace(situation(), survey=nobody_to_ask, probe=probe)
    point = named("initial").build({}).choose(alone)
    assert torch.equal(point.model.theta, INITIAL.theta)
    assert not point.weights and not point.mixture


# --- denials -------------------------------------------------------------------------------------


def asked_by(each: Rule) -> tuple[Asked, set[str]]:
    asked = Asked()
    point = each.build({}).choose(situation(asked))
    return asked, set(point.mixture)


def test_without_past_starts_none_is_sent() -> None:
    starts = [model(200 + number) for number in (2, 3, 4)]
    every, names = asked_by(rule("all", models=12))
    assert all(every.sent(one) for one in starts)
    assert {"start 2", "start 3", "start 4"} < names
    asked, fewer = asked_by(rule("some", without="starts", models=12))
    assert not any(asked.sent(one) for one in starts)
    assert fewer == names - {"start 2", "start 3", "start 4"}


def test_without_the_pilot_it_is_not_sent() -> None:
    every, names = asked_by(rule("all", models=12))
    assert every.sent(PILOT)
    asked, fewer = asked_by(rule("some", without="pilot", models=12))
    assert not asked.sent(PILOT)
    assert fewer == names - {"pilot"}


def test_a_denial_leaves_the_situation_as_it_was() -> None:
    here = situation()
    for denied in ("starts", "pilot"):
        rule("some", without=denied).build({}).choose(here)
    assert all(session.started for session in here.past)
    assert here.pilot is PILOT
