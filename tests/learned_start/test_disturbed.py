"""Devices that answer wrongly: few, always the same, and within the range of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from ebbflow import experiment
from ebbflow.core.survey import Array, Half, Panel, SurveyPlan
from ebbflow.core.types import ModelState
from ebbflow.simulation.building import build_world
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.starts.checking import from_trusted_groups
from ebbflow.starts.learned import learned
from ebbflow.starts.mixing import best_mixture
from learned_start import disturbed as module
from learned_start.disturbed import ATTACKS, Attack, DisturbedPanel, disturbed
from tests.learned_start.made import tiny
from tests.learned_start.test_rules import Asked, situation
from tests.starts.panels import CurvePanel, quadratic

MADE_UP: tuple[Attack, ...] = ("random", "adversarial")
HALVES: tuple[Half, ...] = ("learn", "judge")
ALONE = SurveyPlan(groups=99, least=1)
"""Every device in a group of its own, so that its answer can be seen."""
SIZE = 3
MIXTURES = [*np.eye(SIZE), np.full(SIZE, 1 / SIZE)]
HERE = np.array([0.5, 0.2, 0.3])


def devices(count: int) -> CurvePanel:
    """Return devices of different weights and losses, each in a group of its own."""
    draw = np.random.default_rng(3)
    curves = []
    for _ in range(count):
        root = draw.normal(size=(SIZE, SIZE))
        least = np.array([1.5, -0.5, 0.0]) + 0.3 * draw.normal(size=SIZE)
        curves.append(quadratic(1 + draw.random(), least, root @ root.T, 0.1 + draw.random()))
    return CurvePanel(curves)


def wrong(count: int, attack: Attack) -> DisturbedPanel:
    return DisturbedPanel(devices(count), ALONE, attack, session=4)


def answers(panel: Panel, half: Half) -> list[Array]:
    """Return each device's mean losses, and its loss, slope and curvature."""
    sums = panel.losses(MIXTURES, half)
    around = panel.expansion(HERE, half)
    return [
        sums.loss / sums.weight[:, None],
        around.loss / around.weight,
        around.slope / around.weight[:, None],
        around.curvature / around.weight[:, None, None],
    ]


def changed(before: Array, after: Array) -> list[int]:
    apart = ~np.isclose(before, after, rtol=1e-9, atol=1e-12)
    return np.flatnonzero(apart.reshape(len(before), -1).any(1)).tolist()


# --- who ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("count", [2, 9, 10, 11, 20])
def test_a_tenth_of_the_devices_answers_wrongly_and_always_the_same(
    count: int, attack: Attack
) -> None:
    honest, panel = devices(count), wrong(count, attack)
    liars = set()
    for half in (*HALVES, *HALVES):
        for before, after in zip(answers(honest, half), answers(panel, half), strict=True):
            liars.add(tuple(changed(before, after)))
    (found,) = liars
    assert len(found) == math.ceil(count / 10)


@pytest.mark.parametrize("attack", ATTACKS)
def test_nobody_lies_about_how_much_a_device_counts(attack: Attack) -> None:
    honest, panel = devices(20), wrong(20, attack)
    assert panel.share == honest.share
    assert np.array_equal(
        panel.losses(MIXTURES, "learn").weight, honest.losses(MIXTURES, "learn").weight
    )
    assert np.array_equal(
        panel.expansion(HERE, "learn").weight, honest.expansion(HERE, "learn").weight
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_same_survey_gives_the_same_answers(attack: Attack) -> None:
    one, other = (answers(wrong(20, attack), "learn") for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# --- what ---------------------------------------------------------------------------------------


def lied(attack: Attack) -> tuple[list[Array], list[Array]]:
    """Return the wrong answers, and the honest ones of the others."""
    said = answers(wrong(20, attack), "learn")
    liars = changed(answers(devices(20), "learn")[0], said[0])
    honest = [place for place in range(20) if place not in liars]
    return [kind[liars] for kind in said], [kind[honest] for kind in said]


@pytest.mark.parametrize("attack", MADE_UP)
def test_wrong_answers_stay_within_the_range_of_honest_ones(attack: Attack) -> None:
    slack = 1 + 1e-12  # answers are multiplied by weights and divided again
    for wrongly, honestly in zip(*lied(attack), strict=True):
        assert np.abs(wrongly).max() <= np.abs(honestly).max() * slack
    losses, loss, _, curvatures = lied(attack)[0]
    assert losses.min() >= 0 and loss.min() >= 0
    for curvature in curvatures:
        assert np.linalg.eigvalsh(curvature).min() > -1e-12


def test_random_answers_have_the_curvature_of_some_honest_device() -> None:
    (*_, wrongly), (*_, honestly) = lied("random")
    for curvature in wrongly:
        assert any(np.allclose(curvature, other) for other in honestly)


def test_adversarial_answers_point_uphill_and_call_good_mixtures_bad() -> None:
    (losses, _, slopes, curvatures), honest = lied("adversarial")
    means = honest[0].mean(0)
    assert (losses[:, means.argmin()] == losses.max(1)).all()
    assert (losses[:, means.argmax()] == losses.min(1)).all()
    assert (np.sign(slopes) == -np.sign(honest[2].mean(0))).all()
    assert np.abs(slopes) == pytest.approx(np.abs(honest[2]).max())
    assert not curvatures.any()


def test_consistent_answers_are_a_parabola_around_the_worst_model() -> None:
    """As large at the models of the basis as the largest honest answer, with its derivatives."""
    (losses, loss, slopes, curvatures), honest = lied("consistent")
    worst, most = honest[0][:, :SIZE].mean(0).argmax(), honest[0][:, :SIZE].max()
    away = HERE - np.eye(SIZE)[worst]
    assert losses[:, worst] == pytest.approx(0, abs=1e-12)
    assert losses[:, :SIZE].max() == pytest.approx(most)
    assert loss == pytest.approx(most / 2 * away @ away)
    assert slopes == pytest.approx(np.tile(most * away, (len(slopes), 1)))
    assert curvatures == pytest.approx(np.tile(most * np.eye(SIZE), (len(curvatures), 1, 1)))


# --- groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 3, 5, 10])
def test_where_nobody_lies_a_groups_sum_is_that_of_its_devices(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARE", 0.0)
    single = devices(20)
    panel = DisturbedPanel(single, SurveyPlan(groups=groups), "adversarial", 4)
    sums, each = panel.losses(MIXTURES, "learn"), single.losses(MIXTURES, "learn")
    around, alone = panel.expansion(HERE, "judge"), single.expansion(HERE, "judge")
    assert len(sums.weight) == groups
    assert np.array_equal(sums.products, each.products)
    for ours, theirs in (*zip(sums[:2], each[:2], strict=True), *zip(around, alone, strict=True)):
        added = [theirs[group::groups].sum(0) for group in range(groups)]
        assert ours == pytest.approx(np.stack(added), rel=1e-12)


def test_where_nobody_lies_groups_are_those_of_the_survey_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same devices in the same groups, on real data."""
    monkeypatch.setattr(module, "SHARE", 0.0)
    config = tiny(settings={"partition.devices": 11}).setting.config
    world = build_world(config, experiment.prepared(config, None), 7)
    session = world.sessions[3]
    models = [
        world.model.initial(torch.Generator().manual_seed(seed)) for seed in range(len(MIXTURES[0]))
    ]
    plan = SurveyPlan()

    def survey(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
        return SimulatedPanel(world, session, models, plan)

    ours = DisturbedPanel(
        survey(models, plan._replace(groups=plan.devices, least=1)), plan, "random", 4
    )
    theirs = survey(models, plan)
    # Of float32 losses and counts, added up in another order.
    for half in HALVES:
        for a, b in zip(ours.losses(MIXTURES, half), theirs.losses(MIXTURES, half), strict=True):
            assert a == pytest.approx(b, rel=1e-4)
        for a, b in zip(ours.expansion(HERE, half), theirs.expansion(HERE, half), strict=True):
            assert a == pytest.approx(b, rel=1e-4, abs=1e-4 * np.abs(b).max())


def test_a_disturbed_start_asks_every_device_alone() -> None:
    plans: list[SurveyPlan] = []

    class Spying(Asked):
        def __call__(self, models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
            plans.append(plan)
            return super().__call__(models, plan)

    point = disturbed(learned(groups=4).choose, "random")(situation(Spying()))
    assert plans == [SurveyPlan(groups=20, least=1)]
    assert sum(point.mixture.values()) == pytest.approx(1)


# --- the check ----------------------------------------------------------------------------------

TRUTH = np.array([1.4, -0.6, 0.2])
"""The mixture that all honest devices like best."""


def alike() -> CurvePanel:
    """Return twenty devices with one loss, which count differently."""
    curvature = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])
    return CurvePanel([quadratic(1 + k / 7, TRUTH, curvature, 0.2) for k in range(20)])


def search(panel: Panel) -> Array:
    return best_mixture(panel, SIZE, [0, 1])


@pytest.mark.parametrize("attack", MADE_UP)
@pytest.mark.parametrize("groups", [5, 10])
def test_made_up_answers_are_found_and_left_out(attack: Attack, groups: int) -> None:
    panel = DisturbedPanel(alike(), SurveyPlan(groups=groups), attack, session=4)
    found, left_out = from_trusted_groups(panel, search)
    honest = search(alike())
    assert 1 <= left_out <= 2
    assert found == pytest.approx(honest, abs=1e-9)
    misled = search(DisturbedPanel(alike(), SurveyPlan(groups=groups), attack, session=4))
    assert alike().mean(misled) > alike().mean(honest)
    assert np.abs(misled - honest).max() > 1e-3


def test_answers_that_are_wrong_but_fit_together_are_not_found() -> None:
    panel = DisturbedPanel(alike(), SurveyPlan(), "consistent", session=4)
    found, left_out = from_trusted_groups(panel, search)
    assert left_out == 0
    assert alike().mean(found) > alike().mean(search(alike())) + 1e-3
