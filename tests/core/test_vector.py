"""Vector algebra on models: exact where the text says exact."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from ebbflow.core.types import Layout, ModelState
from ebbflow.core.vector import (
    NEGLIGIBLE,
    all_finite,
    counting,
    flatten,
    layout_of,
    mix,
    not_negative,
    project,
    unflatten,
)

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=5).map(tuple)
entries = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
vectors = st.integers(1, 20).flatmap(
    lambda n: arrays(np.float32, n, elements=entries).map(torch.from_numpy)
)


def layout(shapes: tuple[tuple[int, ...], ...]) -> Layout:
    return Layout(tuple(f"tensor{i}" for i in range(len(shapes))), shapes)


def models(count: int, seed: int = 0) -> list[ModelState]:
    draw = torch.Generator().manual_seed(seed)
    return [
        ModelState(torch.randn(9, generator=draw), torch.randn(4, generator=draw))
        for _ in range(count)
    ]


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()


@given(shapes)
def test_flatten_undoes_unflatten(shapes: tuple[tuple[int, ...], ...]) -> None:
    where = layout(shapes)
    vector = torch.arange(float(where.total))
    assert torch.equal(flatten(unflatten(vector, where), where), vector)


@given(shapes)
def test_unflatten_undoes_flatten(shapes: tuple[tuple[int, ...], ...]) -> None:
    where = layout(shapes)
    tensors = {name: torch.randn(shape) for name, shape in zip(where.names, shapes, strict=True)}
    assert layout_of(tensors.items()) == where
    back = unflatten(flatten(tensors, where), where)
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


@given(shapes)
def test_slices_cut_where_unflatten_does(shapes: tuple[tuple[int, ...], ...]) -> None:
    where = layout(shapes)
    vector = torch.arange(float(where.total))
    parts = unflatten(vector, where)
    for name, at in where.slices().items():
        assert torch.equal(vector[at], parts[name].reshape(-1))


def test_unflatten_gives_views() -> None:
    vector = torch.zeros(3)
    unflatten(vector, layout(((2,), (1,))))["tensor1"].fill_(5)
    assert vector.tolist() == [0, 0, 5]


def test_a_mix_is_the_weighted_sum_of_parameters_and_buffers() -> None:
    a, b, c = models(3)
    mixed = mix([a, b, c], [0.5, 0.3, 0.2])
    torch.testing.assert_close(mixed.theta, 0.5 * a.theta + 0.3 * b.theta + 0.2 * c.theta)
    torch.testing.assert_close(mixed.buffers, 0.5 * a.buffers + 0.3 * b.buffers + 0.2 * c.buffers)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-3, 3))
def test_mixing_parameters_is_linear_in_the_weights(
    one: float, other: float, factor: float
) -> None:
    pair = models(2)
    left = mix(pair, [one + factor * other, other + factor * one])
    first, second = mix(pair, [one, other]), mix(pair, [other, one])
    torch.testing.assert_close(left.theta, first.theta + factor * second.theta, atol=1e-5, rtol=0)


@given(st.floats(0, 3), st.floats(0, 3), st.floats(0, 3))
def test_mixing_buffers_is_linear_in_weights_that_are_not_negative(
    one: float, other: float, factor: float
) -> None:
    pair = models(2)
    left = mix(pair, [one + factor * other, other + factor * one])
    first, second = mix(pair, [one, other]), mix(pair, [other, one])
    torch.testing.assert_close(
        left.buffers, first.buffers + factor * second.buffers, atol=1e-5, rtol=0
    )


affine = st.lists(st.floats(-2, 2), min_size=1, max_size=4).map(lambda w: [1 - sum(w), *w])
"""Weights that add up to one, of which some may be negative."""


@given(affine)
def test_parameters_are_extrapolated_where_weights_are_negative(weights: list[float]) -> None:
    some = models(len(weights))
    stacked = torch.stack([model.theta.double() for model in some])
    expected = torch.tensor(weights, dtype=torch.float64) @ stacked
    torch.testing.assert_close(mix(some, weights).theta, expected.float(), rtol=1e-6, atol=1e-6)


@given(affine)
def test_buffers_are_never_extrapolated(weights: list[float]) -> None:
    """So that a mixture of variances is a variance."""
    some = [ModelState(m.theta, m.buffers.abs()) for m in models(len(weights))]
    stacked = torch.stack([model.buffers for model in some])
    mixed = mix(some, weights).buffers
    assert bool((mixed >= 0).all())
    assert bool((mixed <= stacked.amax(0) * (1 + 1e-6)).all())
    assert bool((mixed >= stacked.amin(0) * (1 - 1e-6)).all())


def test_carried_plus_final_minus_start_takes_the_mean_of_the_buffers_that_count() -> None:
    carried, final, start = models(3)
    mixed = mix([carried, final, start], [1.0, 1.0, -1.0])
    torch.testing.assert_close(mixed.theta, carried.theta + final.theta - start.theta)
    torch.testing.assert_close(mixed.buffers, (carried.buffers + final.buffers) / 2)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_without_negative_weights_a_mix_is_the_plain_sum_to_the_bit(weights: list[float]) -> None:
    some = models(len(weights))
    mixed = mix(some, weights)
    for field in ("theta", "buffers"):
        total = getattr(some[0], field).double() * weights[0]
        for model, weight in zip(some[1:], weights[1:], strict=True):
            total.add_(getattr(model, field), alpha=weight)
        assert same_bits(getattr(mixed, field), total.float())


@given(affine)
def test_weights_that_are_not_negative_keep_their_proportions(weights: list[float]) -> None:
    given, found = np.array(weights), not_negative(torch.tensor(weights, dtype=torch.float64))
    assert float(found.min()) >= 0
    assert float(found.sum()) == pytest.approx(1)
    np.testing.assert_allclose(found.numpy(), given.clip(min=0) / given.clip(min=0).sum())


@given(vectors)
def test_a_single_model_of_weight_one_comes_back_bit_by_bit(vector: Tensor) -> None:
    mixed = mix([ModelState(vector, -vector)], [1.0])
    assert same_bits(mixed.theta, vector)
    assert same_bits(mixed.buffers, -vector)


@given(vectors)
def test_a_model_of_weight_one_beside_models_of_weight_zero_is_itself(vector: Tensor) -> None:
    one, other = ModelState(vector, vector), ModelState(vector + 1, vector - 1)
    assert torch.equal(mix([other, one], [0.0, 1.0]).theta, vector)


def test_the_order_of_equal_weights_does_not_show() -> None:
    three = models(3)
    orders = [mix([three[i] for i in order], [1 / 3] * 3).theta for order in ((0, 1, 2), (2, 0, 1))]
    assert torch.equal(*orders)


def test_mixing_changes_none_of_its_models() -> None:
    pair = models(2)
    mix(pair, [0.5, 0.5])
    assert all(
        torch.equal(now.theta, then.theta) for now, then in zip(pair, models(2), strict=True)
    )


def test_of_models_that_are_read_no_more_than_two_are_here_at_a_time() -> None:
    read: list[weakref.ref[Tensor]] = []

    def reading() -> Iterator[ModelState]:
        for i in range(6):
            assert all(gone() is None for gone in read[:-1])
            theta = models(1, seed=i)[0].theta.clone()
            read.append(weakref.ref(theta))
            yield ModelState(theta, torch.zeros(0))
            del theta

    mixed = mix(reading(), [1 / 6] * 6)
    together = mix([models(1, seed=i)[0] for i in range(6)], [1 / 6] * 6)
    assert same_bits(mixed.theta, together.theta)


def test_weights_that_do_not_count_change_no_bit() -> None:
    many = models(50)
    weights = [0.7, 0.3 - 48e-19] + [1e-19] * 48
    kept = counting(weights)
    assert kept == [0, 1]
    read = mix([many[i] for i in kept], [weights[i] for i in kept])
    whole = mix(many, weights)
    assert same_bits(read.theta, whole.theta)
    assert same_bits(read.buffers, whole.buffers)


def test_only_weights_above_the_threshold_count() -> None:
    assert counting([NEGLIGIBLE, 2 * NEGLIGIBLE, 0.0, 1.0]) == [1, 3]


def test_each_model_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="zip"):
        mix(models(2), [1.0])


@given(vectors, st.floats(1e-3, 1e3))
def test_a_projection_lies_in_the_ball(vector: Tensor, radius: float) -> None:
    assert float(project(vector, radius).double().norm()) <= radius * (1 + 1e-6)


@given(vectors, st.floats(1e-3, 1e3))
def test_projecting_twice_is_projecting_once(vector: Tensor, radius: float) -> None:
    once = project(vector, radius)
    torch.testing.assert_close(project(once, radius), once, rtol=1e-6, atol=0)


@given(vectors, st.floats(1.001, 1e3))
def test_a_point_inside_the_ball_stays_to_the_bit(vector: Tensor, factor: float) -> None:
    radius = factor * float(vector.double().norm()) + 1e-3
    assert same_bits(project(vector, radius), vector)


@given(vectors, st.floats(1e-3, 1e3))
def test_a_projection_is_the_nearest_point(vector: Tensor, radius: float) -> None:
    """A convex set's projection p of v satisfies <v - p, q - p> <= 0 for every q in the set."""
    nearest = project(vector, radius).double()
    inside = torch.linspace(-1, 1, len(vector), dtype=torch.float64)
    inside *= radius / max(1.0, float(inside.norm()))
    slack = 1e-5 * (1 + float(vector.double().norm())) * radius
    assert float(torch.dot(vector.double() - nearest, inside - nearest)) <= slack


def test_zero_stays_zero() -> None:
    assert project(torch.zeros(5), 0.1).tolist() == [0.0] * 5


def test_a_huge_vector_keeps_its_direction() -> None:
    """Its squared norm is beyond float32; its norm is not."""
    torch.testing.assert_close(project(torch.full((4,), 1e25), 1.0), torch.full((4,), 0.5))


@given(
    arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_all_finite_is_what_a_look_at_each_number_says(
    numbers: np.ndarray[tuple[int], np.dtype[np.float32]], dtype: torch.dtype
) -> None:
    vector = torch.from_numpy(numbers).to(dtype)
    assert all_finite(vector) == bool(torch.isfinite(vector).all())


def test_numbers_whose_sum_overflows_are_finite() -> None:
    largest = torch.finfo(torch.float32).max
    assert all_finite(torch.full((3,), largest))
    assert not all_finite(torch.tensor([largest, largest, float("inf")]))
    assert not all_finite(torch.tensor([float("inf"), -float("inf")]))
