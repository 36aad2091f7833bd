"""Mixing weights: the minimum in closed form, damped steps, and the choice on other samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.mixtures import basis_of
from ebbflow.core.survey import Array, Panel
from ebbflow.core.types import ModelState
from ebbflow.models import MODELS
from ebbflow.starts.mixing import (
    RIDGES,
    TOLERANCE,
    RidgeFit,
    Search,
    best_mixture,
    minimise,
    newton_step,
)
from tests.starts.panels import Curve, CurvePanel, SamplePanel, Samples, quadratic

PLAIN, NOT_NEGATIVE = Search(), Search(negative=False)
sizes = st.integers(2, 6)
seeds = st.integers(0, 10_000)


def chosen(panel: Panel, size: int, finals: Sequence[int], search: Search = PLAIN) -> Array:
    return best_mixture(panel, size, finals, search)


def minimised(
    panel: Panel, anchor: Array, ridge: float, search: Search = PLAIN, begin: Array | None = None
) -> RidgeFit:
    """Minimise from the anchor, or from somewhere else."""
    at = anchor if begin is None else begin
    return minimise(panel, RidgeFit(at, panel.expansion(at, "learn"), anchor, ridge, search))


def semidefinite(draw: np.random.Generator, size: int, rank: int) -> Array:
    root = draw.normal(size=(rank, size))
    return root.T @ root


def quadratics(seed: int, size: int, groups: int = 3) -> list[Curve]:
    """Return groups with minima of their own somewhere among mixtures."""
    draw = np.random.default_rng(seed)
    return [
        quadratic(
            float(draw.uniform(1, 9)),
            np.append(least := draw.normal(size=size - 1), 1 - least.sum()),
            semidefinite(draw, size, size),
            float(draw.uniform()),
        )
        for _ in range(groups)
    ]


def minimum(groups: Sequence[Curve], anchor: Array, ridge: float) -> Array:
    """Solve the Lagrange conditions of the ridged mean of quadratics."""
    size, total = len(anchor), sum(group.weight for group in groups)
    curvature = sum(g.weight / total * g.curvature(anchor) for g in groups) + ridge * np.eye(size)
    slope = sum((g.weight / total * g.slope(anchor) for g in groups), np.zeros(size))
    system = np.block([[curvature, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    return anchor + np.linalg.solve(system, np.append(-slope, 0))[:size]


def ridged(panel: CurvePanel, mixture: Array, anchor: Array, ridge: float) -> float:
    return panel.mean(mixture) + ridge / 2 * float((mixture - anchor) @ (mixture - anchor))


# --- minimising ----------------------------------------------------------------------------------


@given(seeds, sizes, st.sampled_from([*RIDGES, 1.0]))
def test_on_quadratics_the_minimum_is_the_closed_form(seed: int, size: int, ridge: float) -> None:
    panel = CurvePanel(quadratics(seed, size))
    anchor = np.eye(size)[seed % size]
    fit = minimised(panel, anchor, ridge)
    best = minimum(list(panel.groups), anchor, ridge)
    gained = ridged(panel, anchor, anchor, ridge) - ridged(panel, best, anchor, ridge)
    if gained > 1.01 * TOLERANCE:  # one step leads there, and a second is not worth a question
        np.testing.assert_allclose(fit.mixture, best, rtol=0, atol=1e-8)
        assert len(panel.expanded) == 2
    elif gained < 0.99 * TOLERANCE:
        assert fit.mixture is anchor
    assert fit.mixture.sum() == pytest.approx(1, abs=1e-10)


def test_a_larger_ridge_stays_nearer_to_the_simple_start() -> None:
    panel, anchor = CurvePanel(quadratics(3, 4)), np.eye(4)[0]
    fits = [minimised(panel, anchor, ridge).mixture for ridge in (100.0, 1.0, 0.01)]
    moved = [float(np.linalg.norm(fit - anchor)) for fit in fits]
    assert 0 < moved[0] < moved[1] < moved[2]


def valley(turn: float = 0.0) -> Curve:
    """Return sqrt(1 + u^2) with u = 3 at the first model and -3 at the second.

    Newton's step from u goes to -u^3, so that from the first model it overshoots.
    """
    a = np.array([3.0, -3.0])
    return Curve(
        1.0,
        lambda x: float(np.sqrt(1 + (a @ x - turn) ** 2)),
        lambda x: a * (a @ x - turn) / np.sqrt(1 + (a @ x - turn) ** 2),
        lambda x: np.outer(a, a) * (1 + (a @ x - turn) ** 2) ** -1.5,
    )


def test_a_step_that_overshoots_is_damped() -> None:
    panel, anchor = CurvePanel([valley()]), np.array([1.0, 0.0])
    fit = minimised(panel, anchor, 0.001)
    assert max(panel.mean(asked) for asked in panel.expanded) > 2 * panel.mean(anchor)
    assert fit.mixture == pytest.approx([0.5, 0.5], abs=0.01)
    assert fit.around.loss.sum() == panel.mean(fit.mixture)  # expanded where it ended
    assert panel.mean(fit.mixture) == pytest.approx(1, abs=2 * TOLERANCE)


def within(groups: list[Curve], anchor: Array, radius: float) -> list[Curve]:
    """Return groups whose numbers are none beyond a radius around a mixture."""

    def near(x: Array) -> bool:
        return float(np.linalg.norm(x - anchor)) <= radius

    return [
        Curve(
            group.weight,
            lambda x, g=group: g.loss(x) if near(x) else np.nan,  # type: ignore[misc]  # a default
            lambda x, g=group: g.slope(x) * (1 if near(x) else np.nan),  # type: ignore[misc]
            lambda x, g=group: g.curvature(x) * (1 if near(x) else np.nan),  # type: ignore[misc]
        )
        for group in groups
    ]


def test_where_the_loss_is_no_number_no_step_ends() -> None:
    anchor = np.eye(3)[0]
    everywhere = quadratics(5, 3)
    far = float(np.linalg.norm(minimum(everywhere, anchor, 0.01) - anchor))
    panel = CurvePanel(within(everywhere, anchor, far / 4))
    fit = minimised(panel, anchor, 0.01)
    assert np.isfinite(fit.mixture).all()
    assert panel.mean(fit.mixture) < panel.mean(anchor)
    assert 0 < np.linalg.norm(fit.mixture - anchor) <= far / 4


def test_a_loss_that_is_a_number_at_the_start_alone_leaves_it_there() -> None:
    anchor = np.eye(3)[0]
    panel = CurvePanel(within(quadratics(5, 3), anchor, 1e-9))
    assert minimised(panel, anchor, 0.01).mixture is anchor


# --- Newton's step -------------------------------------------------------------------------------


@given(seeds, sizes, st.data(), st.sampled_from([0.0, 0.1, 10.0]))
def test_a_step_leaves_the_sum_alone_even_where_the_curvature_is_singular(
    seed: int, size: int, data: st.DataObject, damping: float
) -> None:
    draw = np.random.default_rng(seed)
    rank = data.draw(st.integers(0, size), label="rank")
    curvature, slope = semidefinite(draw, size, rank), draw.normal(size=size)
    step = newton_step(slope, curvature, damping)
    assert np.isfinite(step).all()
    assert abs(step.sum()) <= 1e-9 * (1 + np.abs(step).sum())
    assert slope @ step <= 1e-9 * (1 + np.abs(step).sum())  # downhill, or nowhere


@given(seeds, sizes)
def test_after_a_step_no_direction_among_mixtures_goes_down(seed: int, size: int) -> None:
    draw = np.random.default_rng(seed)
    curvature = semidefinite(draw, size, size) + 0.1 * np.eye(size)
    slope = draw.normal(size=size)
    there = slope + curvature @ newton_step(slope, curvature)
    np.testing.assert_allclose(there, there.mean(), rtol=0, atol=1e-7)


def test_damping_shortens_a_step() -> None:
    draw = np.random.default_rng(1)
    curvature, slope = semidefinite(draw, 4, 4), draw.normal(size=4)
    lengths = [np.linalg.norm(newton_step(slope, curvature, d)) for d in (0.0, 0.1, 1.0, 100.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0] / 10


# --- choosing ------------------------------------------------------------------------------------


def softmax_panel(seed: int, models: int, groups: int = 2) -> SamplePanel:
    """Return a panel of softmax regression, a convex problem, in double precision."""
    draw = torch.Generator().manual_seed(seed)
    model = MODELS["softmax"]((4,), 3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    states = [ModelState(normal(model.layout.total), normal(0)) for _ in range(models)]

    def samples() -> Samples:
        labels = torch.randint(3, (9,), generator=draw)
        return normal(9, 4), labels, torch.rand(9, generator=draw, dtype=torch.float64) + 0.1

    return SamplePanel(basis_of(model, states), [samples() for _ in range(groups)])


@settings(max_examples=25)
@given(seeds, st.integers(2, 5))
def test_no_simple_start_has_a_lower_loss_than_the_chosen_one(seed: int, models: int) -> None:
    """Where the judging half is the learning half, and everybody is asked."""
    panel = softmax_panel(seed, models)
    found = chosen(panel, models, range(models))
    simple = [*np.eye(models), np.full(models, 1 / models)]
    losses = panel.losses([found, *simple], "learn").means
    assert found.sum() == pytest.approx(1, abs=1e-9)
    assert losses[0] <= losses[1:].min() + 1e-12


def between(*wishes: float) -> list[Curve]:
    """Return groups with losses (t - wish)^2 / 2 at the weights (1 - t, t) of two models."""
    line = np.array([[0.0, 0.0], [0.0, 1.0]])
    return [quadratic(5.0, np.array([1 - wish, wish]), line) for wish in wishes]


def test_what_is_better_only_on_the_samples_it_was_learnt_from_is_not_taken() -> None:
    panel = CurvePanel(between(0.5, 0.5), judge=between(0.0, 0.0))
    assert chosen(panel, 2, [0]).tolist() == [1, 0]
    panel = CurvePanel(between(0.5, 0.5), judge=between(1.0, 1.1))
    assert chosen(panel, 2, [0]).tolist() == [0, 1]


def test_what_is_better_on_other_samples_too_is_taken() -> None:
    panel = CurvePanel(between(0.5, 0.5), judge=between(0.4, 0.6))
    assert chosen(panel, 2, [0]) == pytest.approx([0.5, 0.5], abs=0.1)


@settings(max_examples=10)
@given(seeds, st.integers(2, 4))
def test_one_step_leads_near_the_exact_refit_without_a_group(seed: int, models: int) -> None:
    """On convex losses: nearer to it than the minimum with the group."""
    panel = softmax_panel(seed, models, groups=12)
    anchor = np.full(models, 1 / models)
    fit = minimised(panel, anchor, 0.1)
    rest = SamplePanel(panel.basis, panel.groups[1:])
    exact = minimised(rest, anchor, 0.1, begin=fit.without(0)).mixture

    def value(mixture: Array) -> float:
        moved = mixture - anchor
        return float(rest.losses([mixture], "learn").means[0] + 0.05 * moved @ moved)

    assert value(fit.without(0)) <= value(fit.mixture) + 1e-6
    assert value(fit.without(0)) == pytest.approx(value(exact), abs=2 * TOLERANCE)


@given(seeds, sizes, st.sampled_from(RIDGES))
def test_on_quadratics_leaving_out_a_group_is_the_exact_refit(
    seed: int, size: int, ridge: float
) -> None:
    groups, anchor = quadratics(seed, size, groups=4), np.eye(size)[0]
    fit = minimised(CurvePanel(groups), anchor, ridge)
    for out in range(4):
        rest = [group for place, group in enumerate(groups) if place != out]
        exact = minimum(rest, anchor, ridge)
        np.testing.assert_allclose(fit.without(out), exact, rtol=0, atol=1e-7)


@given(seeds, sizes)
def test_once_chosen_a_mixture_is_learnt_from_all_samples(seed: int, size: int) -> None:
    """It goes to the minimum over both halves, but never further than from the anchor to here."""
    groups, more = quadratics(seed, size), quadratics(seed + 20_000, size)
    panel, anchor = CurvePanel(groups, judge=more), np.eye(size)[0]
    fit = minimised(panel, anchor, 0.1)
    found = fit.with_more(panel.expansion(fit.mixture, "judge"))
    wanted = minimum([*groups, *more], anchor, 0.1) - fit.mixture
    share = min(1.0, float(np.linalg.norm(fit.mixture - anchor) / np.linalg.norm(wanted)))
    np.testing.assert_allclose(found, fit.mixture + share * wanted, rtol=0, atol=1e-7)
    assert found.sum() == pytest.approx(1, abs=1e-9)


def disagreeing(share: float) -> CurvePanel:
    """Return two groups that want to go opposite ways from the line between two models.

    Together they are best off half-way, with a loss of 3.125 against 3.25 at either model. But what
    one of them chooses by itself costs the other 12.5.
    """
    return CurvePanel(between(-2.0, 3.0), share)


def test_if_everybody_is_asked_what_all_have_learnt_is_taken() -> None:
    assert chosen(disagreeing(1.0), 2, [0]) == pytest.approx([0.5, 0.5], abs=0.1)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_if_groups_disagree_a_simple_start_is_taken_for_those_not_asked(share: float) -> None:
    assert chosen(disagreeing(share), 2, [0]).tolist() == [1, 0]


def test_if_groups_agree_what_all_have_learnt_is_taken_for_those_not_asked() -> None:
    panel = CurvePanel(between(0.4, 0.5, 0.6), share=0.1)
    assert chosen(panel, 2, [0]) == pytest.approx([0.5, 0.5], abs=0.1)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_single_group_chooses_by_itself(share: float) -> None:
    """There is nobody else to judge what it has learnt."""
    panel = CurvePanel(quadratics(7, 3, groups=1), share)
    found = chosen(panel, 3, [0, 1])
    assert panel.mean(found) <= min(panel.mean(corner) for corner in np.eye(3))


def at_the_second(gap: float) -> CurvePanel:
    """Return groups that are all best off with the second of two models."""
    line = np.array([[2 * gap, 0.0], [0.0, 0.0]])
    best = np.array([0.0, 1.0])
    return CurvePanel([quadratic(float(n), best, n * line, 1.0) for n in (1, 2, 3)])


def test_within_a_margin_of_standard_errors_the_simplest_is_taken() -> None:
    panel = at_the_second(0.2)
    sums = panel.losses(list(np.eye(2)), "judge")
    errors = float(sums.means[0] - sums.means[1]) / sums.error(0, 1)
    assert errors > 0
    assert chosen(panel, 2, [0]).tolist() == [0, 1]
    assert chosen(panel, 2, [0], Search(margin=0.99 * errors)).tolist() == [0, 1]
    assert chosen(panel, 2, [0], Search(margin=1.01 * errors)).tolist() == [1, 0]


def test_of_equal_starts_the_first_is_taken() -> None:
    flat = CurvePanel([quadratic(1.0, np.zeros(3), np.zeros((3, 3)), 2.0)] * 2, 0.5)
    assert chosen(flat, 3, [0, 1]).tolist() == [1, 0, 0]


@pytest.mark.parametrize("finals", [[], [1], [0, 2]])
def test_the_mean_of_final_models_is_a_simple_start(finals: list[int]) -> None:
    mean = np.eye(3)[[0, 2]].mean(0)
    hollow = [
        Curve(
            1.0,
            lambda a: float(not np.array_equal(a, mean)),
            lambda a: np.zeros(3),
            lambda a: np.zeros((3, 3)),
        )
    ]
    wanted = [0.5, 0, 0.5] if finals == [0, 2] else [1, 0, 0]
    assert chosen(CurvePanel(hollow), 3, finals).tolist() == wanted


def test_nothing_is_judged_by_what_it_was_learnt_from() -> None:
    panel = disagreeing(0.5)
    chosen(panel, 2, [0, 1])
    crossed = len(RIDGES) * 2
    assert panel.compared == [(3, "learn"), (3 + len(RIDGES) + crossed, "judge")]


def test_a_mixture_whose_loss_is_no_number_is_not_taken() -> None:
    """What some have chosen may lie where others' losses overflow."""
    corner = np.array([1.0, 0.0])
    panel = CurvePanel(within(list(disagreeing(0.5).groups), corner, 1.5), 0.5)
    found = chosen(panel, 2, [0])
    assert np.isfinite(panel.mean(found))
    assert panel.mean(found) <= panel.mean(corner)


def test_the_last_step_is_not_taken_on_trust() -> None:
    """Newton's step from here was refused before; learning from all samples must not take it."""
    panel = CurvePanel(within(between(3.0, 3.0), np.array([0.0, 1.0]), 1.5))
    found = chosen(panel, 2, [0])
    assert panel.mean(found) < panel.mean(np.array([0.0, 1.0]))


def test_a_model_whose_loss_is_no_number_is_not_begun_from() -> None:
    groups = quadratics(2, 3)
    anchor = np.eye(3)[1]
    panel = CurvePanel(within(groups, anchor, 1.0))  # the other corners are sqrt(2) away
    found = chosen(panel, 3, [0, 1])
    assert panel.mean(found) <= panel.mean(anchor)


# --- weights that are not negative ---------------------------------------------------------------


@given(seeds, sizes)
def test_without_negative_weights_no_candidate_has_any(seed: int, size: int) -> None:
    panel = CurvePanel(quadratics(seed, size), share=0.5)
    found = chosen(panel, size, [0], NOT_NEGATIVE)
    assert found.min() >= -1e-9
    assert found.sum() == pytest.approx(1, abs=1e-9)
    assert all(asked.min() >= -1e-9 for asked in panel.expanded)


def simplex_minimum(groups: list[Curve], anchor: Array, ridge: float) -> Array:
    """Try every set of models that may count, and return the best point that is a mixture."""
    size = len(anchor)
    panel = CurvePanel(groups)
    found: list[Array] = []
    for subset in range(1, 2**size):
        free = [k for k in range(size) if subset >> k & 1]
        lift = np.eye(size)[:, free]
        total = sum(g.weight for g in groups)
        curvature = sum(g.weight / total * g.curvature(anchor) for g in groups)
        curvature = lift.T @ (curvature + ridge * np.eye(size)) @ lift
        slope = sum((g.weight / total * g.slope(np.zeros(size)) for g in groups), np.zeros(size))
        slope = lift.T @ (slope - ridge * anchor)
        ones = np.ones((len(free), 1))
        system = np.block([[curvature, ones], [ones.T, np.zeros((1, 1))]])
        point = lift @ np.linalg.solve(system, np.append(-slope, 1))[:-1]
        if point.min() >= -1e-12:
            found.append(point)
    return min(found, key=lambda point: ridged(panel, point, anchor, ridge))


@given(seeds, st.integers(2, 5), st.sampled_from(RIDGES))
def test_without_negative_weights_the_minimum_is_the_best_mixture(
    seed: int, size: int, ridge: float
) -> None:
    panel, anchor = CurvePanel(quadratics(seed, size)), np.eye(size)[seed % size]
    fit = minimised(panel, anchor, ridge, NOT_NEGATIVE)
    best = simplex_minimum(list(panel.groups), anchor, ridge)
    assert ridged(panel, fit.mixture, anchor, ridge) <= (
        ridged(panel, best, anchor, ridge) + 2 * TOLERANCE
    )


# --- nothing in common with the past --------------------------------------------------------------


@given(seeds, sizes, st.data())
def test_where_no_simple_start_is_better_than_a_fresh_one_no_mixture_is_tried(
    seed: int, size: int, data: st.DataObject
) -> None:
    fresh = data.draw(st.integers(0, size - 1))
    panel = CurvePanel(quadratics(seed, size))
    simple = [panel.mean(weights) for weights in np.eye(size)]
    panel.compared.clear()
    found = best_mixture(panel, size, [], fresh=fresh)
    if int(np.argmin(simple)) == fresh:
        assert found.tolist() == np.eye(size)[fresh].tolist()
        assert panel.compared == [(size, "learn")] and not panel.expanded
    else:
        assert found.tolist() == best_mixture(panel, size, []).tolist()
