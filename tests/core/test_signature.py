"""Distances against numpy, and weights that stay weights at every R."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.signature import (
    DISTANCES,
    TO_ALL,
    Distance,
    distances_to_all,
    inner_product,
    nearly_uniform,
    normalised,
    per_tensor,
    raw,
    similarity_weights,
)
from ebbflow.core.types import Layout

LAYOUT = Layout(("a.weight", "a.bias", "b.weight", "b.bias"), ((3, 4), (3,), (2, 3), (2,)))
every_distance = pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES.keys())
seeds = st.integers(0, 10**6)
distances = st.lists(st.floats(0, 2), min_size=1, max_size=12)
scales = st.floats(0, 1e4) | st.sampled_from([800.0, math.inf])


def signature(seed: int, name: str = "a") -> Tensor:
    draw = torch.Generator().manual_seed(2 * seed + (name == "a"))
    return torch.randn(LAYOUT.total, generator=draw)


def weights_of(vector: Tensor) -> list[NDArray[np.float64]]:
    flat = vector.double().numpy()
    return [flat[:12], flat[15:21]]


def unit(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(v / np.sqrt((v**2).sum()))


@given(seeds)
def test_raw_is_the_two_norm_of_the_difference(seed: int) -> None:
    a, b = signature(seed, "a"), signature(seed, "b")
    expected = math.sqrt(sum((p - q) ** 2 for p, q in zip(a.tolist(), b.tolist(), strict=True)))
    assert raw(a, b, LAYOUT) == pytest.approx(expected)


@given(seeds)
def test_per_tensor_is_the_mean_over_weight_tensors(seed: int) -> None:
    a, b = signature(seed, "a"), signature(seed, "b")
    pairs = zip(weights_of(a), weights_of(b), strict=True)
    expected = np.mean([np.sqrt(((unit(p) - unit(q)) ** 2).sum()) for p, q in pairs])
    assert per_tensor(a, b, LAYOUT) == pytest.approx(expected)


@given(seeds)
def test_normalised_is_the_distance_of_the_unit_vectors(seed: int) -> None:
    a, b = signature(seed, "a"), signature(seed, "b")
    expected = np.sqrt(((unit(a.double().numpy()) - unit(b.double().numpy())) ** 2).sum())
    assert normalised(a, b, LAYOUT) == pytest.approx(expected)


@given(seeds)
def test_inner_product_is_half_the_squared_normalised_distance(seed: int) -> None:
    """||u - v||^2 = 2 - 2 <u, v> for unit vectors."""
    a, b = signature(seed, "a"), signature(seed, "b")
    assert inner_product(a, b, LAYOUT) == pytest.approx(normalised(a, b, LAYOUT) ** 2 / 2)


@every_distance
@given(seed=seeds)
def test_a_distance_is_symmetric_and_not_negative(distance: Distance, seed: int) -> None:
    a, b = signature(seed, "a"), signature(seed, "b")
    assert distance(a, b, LAYOUT) == pytest.approx(distance(b, a, LAYOUT))
    assert distance(a, b, LAYOUT) > 0


@every_distance
@given(seed=seeds)
def test_a_signature_is_at_distance_zero_from_itself(distance: Distance, seed: int) -> None:
    a = signature(seed)
    assert distance(a, a.clone(), LAYOUT) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("distance", [per_tensor, normalised, inner_product])
@given(seed=seeds)
def test_opposite_signatures_are_at_the_largest_distance_two(distance: Distance, seed: int) -> None:
    a, b = signature(seed, "a"), signature(seed, "b")
    assert distance(a, -a, LAYOUT) == pytest.approx(2)
    assert distance(a, b, LAYOUT) <= 2 + 1e-12


@given(seeds, st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4))
def test_scaling_tensors_apart_changes_no_per_tensor_distance(
    seed: int, factors: list[float]
) -> None:
    a, b = signature(seed, "a"), signature(seed, "b")
    scaled = a.double()
    for at, factor in zip(LAYOUT.slices().values(), factors, strict=True):
        scaled[at] *= factor
    assert per_tensor(scaled, b, LAYOUT) == pytest.approx(per_tensor(a, b, LAYOUT))


def test_per_tensor_leaves_biases_out() -> None:
    a, b = signature(1, "a"), signature(1, "b")
    changed = b.clone()
    changed[12:15] = 100
    changed[21:] = -100
    assert per_tensor(a, changed, LAYOUT) == per_tensor(a, b, LAYOUT)


def test_per_tensor_skips_what_is_zero_on_both_sides() -> None:
    a, b = signature(1, "a"), signature(1, "b")
    a[15:21] = b[15:21] = 0
    first = Layout(LAYOUT.names[:1], LAYOUT.shapes[:1])
    assert per_tensor(a, b, LAYOUT) == per_tensor(a[:12], b[:12], first)


def test_a_tensor_that_is_zero_on_one_side_is_one_away() -> None:
    a, b = signature(1), signature(1)
    b[15:21] = 0
    assert per_tensor(a, b, LAYOUT) == pytest.approx(1 / 2)


@pytest.mark.parametrize("distance", [per_tensor, normalised, raw])
def test_two_zero_signatures_are_the_same(distance: Distance) -> None:
    zero = torch.zeros(LAYOUT.total)
    assert distance(zero, zero, LAYOUT) == 0


def test_distances_are_taken_in_float64() -> None:
    one = torch.ones(LAYOUT.total)
    near = one.clone()
    near[0] += 2**-20
    assert raw(one, near, LAYOUT) == 2**-20
    assert per_tensor(one * 1e-30, one * 1e-30, LAYOUT) == 0


@given(distances, scales)
def test_weights_are_positive_and_sum_to_one(found: list[float], scale: float) -> None:
    weights = similarity_weights(found, scale)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()


@given(distances, scales)
def test_a_nearer_session_never_counts_less(found: list[float], scale: float) -> None:
    weights = similarity_weights(found, scale)
    assert (np.diff(weights[np.argsort(found)]) <= 1e-15).all()


@given(distances, st.floats(0, 20))
def test_weights_are_in_the_ratio_of_the_exponentials(found: list[float], scale: float) -> None:
    expected = np.exp(-scale * np.array(found))
    assert similarity_weights(found, scale) == pytest.approx(expected / expected.sum())


@given(st.lists(st.integers(0, 64), min_size=1, max_size=9), st.integers(0, 64), scales)
def test_a_common_shift_changes_no_weight(found: list[int], shift: int, scale: float) -> None:
    near = [d / 32 for d in found]
    far = [(d + shift) / 32 for d in found]
    assert similarity_weights(far, scale).tolist() == similarity_weights(near, scale).tolist()


@given(distances)
def test_r_zero_is_the_plain_average(found: list[float]) -> None:
    assert similarity_weights(found, 0.0) == pytest.approx([1 / len(found)] * len(found))


@given(distances)
def test_r_infinite_is_the_nearest_and_ties_share(found: list[float]) -> None:
    nearest = np.array(found) == min(found)
    assert similarity_weights(found, math.inf).tolist() == (nearest / nearest.sum()).tolist()


def test_the_authors_largest_r_gives_weights() -> None:
    weights = similarity_weights(np.linspace(0.1, 2, 20).tolist(), 800.0)
    assert np.isfinite(weights).all()
    assert weights[0] == pytest.approx(1)
    assert 0 < weights[1] < 1e-30


def test_far_sessions_at_a_huge_r_count_nothing() -> None:
    assert similarity_weights([1e6, 1e6 + 1], 1e300).tolist() == [1.0, 0.0]


def test_any_finite_r_gives_weights_without_a_warning() -> None:
    """R d may lie beyond the largest float."""
    assert similarity_weights([0.0, 2.0], 1e308).tolist() == [1.0, 0.0]


@given(st.integers(2, 50))
def test_equal_weights_are_nearly_uniform(count: int) -> None:
    assert nearly_uniform([1 / count] * count)


@given(st.integers(2, 50), st.floats(0.06, 0.5))
def test_one_weight_beyond_the_tolerance_is_not_nearly_uniform(count: int, more: float) -> None:
    large = (1 + more) / count
    assert not nearly_uniform([large] + [(1 - large) / (count - 1)] * (count - 1))


def test_a_single_session_is_no_average() -> None:
    assert not nearly_uniform([1.0])


# --- to many at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=25)
@given(seed=seeds, zeros=st.sets(st.integers(0, 9)), tensors=st.sets(st.sampled_from([0, 12, 15])))
def test_distances_to_many_are_those_to_each(
    name: str, seed: int, zeros: set[int], tensors: set[int]
) -> None:
    """Also where whole vectors are zero, or single tensors of all of them."""
    vectors = torch.stack([signature(seed + k) for k in range(10)])
    vectors[sorted(zeros)] = 0
    for first in tensors:
        vectors[:, first : first + 6] = 0
    for one in (vectors[0], signature(seed, "b")):
        forms = torch.stack([TO_ALL[name].form(other, LAYOUT) for other in vectors])
        found = distances_to_all(name, one, torch.split(forms, 4), LAYOUT)
        each = [DISTANCES[name](one, other, LAYOUT) for other in vectors]
        assert found == pytest.approx(each, rel=1e-12, abs=1e-12)  # float64 rounding


@pytest.mark.parametrize("name", DISTANCES)
@given(seed=seeds, apart=st.lists(st.floats(-9, 0), min_size=1, max_size=20))
def test_distances_to_many_that_are_close(name: str, seed: int, apart: list[float]) -> None:
    """Products of unit vectors lose the digits of small distances: those are differences again."""
    one = signature(seed)
    others = [one + 10**power * signature(seed + 1 + k) for k, power in enumerate(apart)]
    forms = torch.stack([TO_ALL[name].form(other, LAYOUT) for other in others])
    found = distances_to_all(name, one, [forms], LAYOUT)
    each = [DISTANCES[name](one, other, LAYOUT) for other in others]
    assert found == pytest.approx(each, rel=1e-9, abs=1e-12)
