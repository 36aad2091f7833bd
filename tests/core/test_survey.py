"""Sums over devices: means and standard errors, against those of the samples themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.survey import Array, LossSums, SurveyPlan


def summed(losses: Array, weights: Array, groups: int) -> LossSums:
    """Return the sums of ``losses [A, N]`` over groups that take turns."""
    each = losses * weights
    parts = [slice(g, None, groups) for g in range(groups)]
    return LossSums(
        np.array([weights[part].sum() for part in parts]),
        np.array([each[:, part].sum(1) for part in parts]),
        each @ each.T,
    )


def samples(seed: int, count: int, mixtures: int = 3) -> tuple[Array, Array]:
    draw = np.random.default_rng(seed)
    return draw.exponential(size=(mixtures, count)), draw.uniform(0.1, 5, size=count)


@given(st.integers(0, 999), st.integers(1, 30), st.integers(1, 4))
def test_means_are_those_of_all_samples_however_they_are_grouped(
    seed: int, count: int, groups: int
) -> None:
    losses, weights = samples(seed, count)
    means = summed(losses, weights, groups).means
    np.testing.assert_allclose(means, np.average(losses, axis=1, weights=weights), rtol=1e-12)


@given(st.integers(0, 999), st.integers(1, 30), st.integers(1, 4))
def test_the_error_is_that_of_a_weighted_mean_of_differences(
    seed: int, count: int, groups: int
) -> None:
    """Around zero, as if both were equally good: sqrt(sum_i (w_i d_i)^2) / sum_i w_i."""
    losses, weights = samples(seed, count)
    sums = summed(losses, weights, groups)
    expected = np.sqrt((weights**2 * (losses[0] - losses[2]) ** 2).sum()) / weights.sum()
    # What is left of sums of squares that cancel: their rounding, under a root.
    assert sums.error(0, 2) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert sums.error(2, 0) == pytest.approx(sums.error(0, 2), rel=1e-6, abs=1e-7)
    assert sums.error(1, 1) == pytest.approx(0, abs=1e-7)


def test_for_equal_weights_and_equal_means_it_is_the_usual_standard_error() -> None:
    losses, _ = samples(0, 400, mixtures=2)
    losses -= losses.mean(1, keepdims=True)
    difference = losses[0] - losses[1]
    sums = summed(losses, np.full(400, 2.5), 4)
    assert sums.error(0, 1) == pytest.approx(difference.std() / np.sqrt(400), rel=1e-9)


def test_the_error_shrinks_with_the_root_of_the_samples() -> None:
    losses, weights = samples(0, 100)
    few = summed(losses, weights, 2).error(0, 1)
    many = summed(np.tile(losses, 16), np.tile(weights, 16), 2).error(0, 1)
    assert many == pytest.approx(few / 4, rel=1e-9)


def test_a_plan_asks_for_little() -> None:
    """What docs and parameters promise: by default no model costs more than two bytes an entry."""
    plan = SurveyPlan()
    assert (plan.devices, plan.samples, plan.groups) == (20, 32, 5)
    assert (plan.balance, plan.compression) == (0.5, "bf16")
