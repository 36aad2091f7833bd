"""Every sample goes to one device, and the priors are what they are said to be."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Indices
from ebbflow.data.partition import (
    PARTITIONS,
    Partition,
    _dirichlet,
    _open_labels,
    dirichlet_devices,
    dirichlet_labels,
    label_groups,
)

partitions = pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS.keys())


def span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


@pytest.mark.parametrize(
    ("classes", "overlap", "a", "b"),
    [
        (4, 0.0, span(0, 1), span(2, 3)),
        (4, 0.2, span(0, 1), span(2, 3)),
        (4, 0.8, span(0, 2), span(1, 3)),
        (10, 0.0, span(0, 4), span(5, 9)),
        (10, 0.2, span(0, 4), span(4, 8)),
        (10, 0.8, span(0, 7), span(2, 9)),
        (100, 0.0, span(0, 49), span(50, 99)),
        (100, 0.2, span(0, 54), span(44, 98)),
        (100, 0.8, span(0, 82), span(17, 99)),
        (200, 0.0, span(0, 99), span(100, 199)),
        (200, 0.2, span(0, 110), span(89, 199)),
        (200, 0.8, span(0, 165), span(34, 199)),
        (7, 0.0, span(0, 2), span(3, 6)),
        (10, 1.0, span(0, 9), span(0, 9)),
    ],
)
def test_label_groups_follow_the_authors(
    classes: int, overlap: float, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    assert label_groups(classes, overlap) == (a, b)


@given(st.integers(2, 300), st.floats(0, 1))
def test_label_groups_stay_within_the_classes(classes: int, overlap: float) -> None:
    a, b = label_groups(classes, overlap)
    shared = set(a) & set(b)
    assert a and b
    assert a[0] == 0
    assert b[-1] < classes
    # At most one label is lost to rounding, and none where nothing is shared.
    assert len(set(a) | set(b)) >= classes - 1
    if shared:
        assert len(a) == len(b)
        # The one-in-a-million fraction that stands for `overlap` may differ by so much.
        assert len(shared) <= len(a) * overlap + 1e-3
        assert len(shared) > len(a) * overlap - 1 - 1e-3
    else:
        assert (len(a), len(b)) == (classes // 2, classes - classes // 2)


@pytest.mark.parametrize("thirds", [1 / 3, 0.3333333333333333])
def test_an_overlap_that_no_decimal_meets_is_not_floored_away(thirds: float) -> None:
    a, b = label_groups(5, thirds)
    assert (a, b) == ((0, 1, 2), (2, 3, 4))


@pytest.mark.parametrize("overlap", [-0.1, 1.5, math.nan, math.inf])
def test_label_groups_refuse_an_overlap_that_is_no_share(overlap: float) -> None:
    with pytest.raises(EbbflowError, match=rf"`partition.overlap` is {overlap}.*from 0 to 1"):
        label_groups(10, overlap)


def test_label_groups_refuse_a_single_class() -> None:
    with pytest.raises(EbbflowError, match=r"1 classes.*at least 2"):
        label_groups(1, 0.5)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], int, float, int]:
    """Draw labels of samples, the wanted ones, a number of devices, alpha and a seed."""
    classes = draw(st.integers(1, 6))
    extra = draw(st.lists(st.integers(0, classes - 1), min_size=classes, max_size=120))
    y = np.array([*range(classes), *extra])
    wanted = draw(st.sets(st.integers(0, classes - 1), min_size=1))
    # Enough samples for two on each device, which is what the label-wise rule demands.
    devices = draw(st.integers(1, max(1, int(np.isin(y, list(wanted)).sum()) // 2)))
    alpha = draw(st.floats(1e-320, 1e300))
    return y, tuple(wanted), devices, alpha, draw(st.integers(0, 2**32))


def run(
    partition: Callable[..., list[Indices]],
    problem: tuple[np.ndarray, tuple[int, ...], int, float, int],
) -> list[Indices]:
    y, labels, devices, alpha, seed = problem
    return partition(y, labels, devices, alpha, np.random.default_rng(seed))


def used_exactly_once(parts: list[Indices], y: np.ndarray, labels: tuple[int, ...]) -> bool:
    wanted = np.flatnonzero(np.isin(y, labels))
    return np.array_equal(np.sort(np.concatenate(parts)), wanted)


@given(problems())
def test_dirichlet_devices_uses_every_sample_once_in_equal_quotas(
    problem: tuple[np.ndarray, tuple[int, ...], int, float, int],
) -> None:
    y, labels, devices, _, _ = problem
    parts = run(dirichlet_devices, problem)
    total = int(np.isin(y, labels).sum())
    assert used_exactly_once(parts, y, labels)
    # The remainder goes one each to the first devices.
    assert [len(part) for part in parts] == [
        total // devices + (device < total % devices) for device in range(devices)
    ]


@given(problems().filter(lambda problem: 2 * problem[2] <= np.isin(problem[0], problem[1]).sum()))
def test_dirichlet_labels_uses_every_sample_once_and_leaves_no_device_short(
    problem: tuple[np.ndarray, tuple[int, ...], int, float, int],
) -> None:
    y, labels, devices, _, _ = problem
    parts = run(dirichlet_labels, problem)
    assert len(parts) == devices
    assert used_exactly_once(parts, y, labels)
    assert min(map(len, parts)) >= 2


@partitions
def test_rows_are_canonical_and_the_draw_depends_on_the_generator_alone(
    partition: Partition,
) -> None:
    y = np.random.default_rng(0).integers(6, size=3000).astype(np.uint8)
    first, again, other = (
        partition(y, labels, 20, 0.5, np.random.default_rng(seed))
        for labels, seed in [((1, 4, 2), 7), ((4, 2, 1), 7), ((1, 4, 2), 8)]
    )
    for part, same in zip(first, again, strict=True):
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
        np.testing.assert_array_equal(part, same)
    assert any(a.tolist() != b.tolist() for a, b in zip(first, other, strict=True))


def label_shares(parts: list[Indices], y: np.ndarray, classes: int) -> np.ndarray:
    counts = np.array([np.bincount(y[part], minlength=classes) for part in parts])
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


@partitions
def test_a_large_alpha_gives_every_device_the_same_mix(partition: Partition) -> None:
    y = np.repeat(np.arange(10), 1000)
    parts = partition(y, range(10), 10, 1e6, np.random.default_rng(1))
    # A share of 0.1 out of 1000 draws has a standard deviation of 0.0095.
    assert np.abs(label_shares(parts, y, 10) - 0.1).max() < 0.05


@pytest.mark.parametrize("alpha", [1e-3, 1e-12, 1e-310])
def test_a_small_alpha_gives_an_early_device_a_single_label(alpha: float) -> None:
    y = np.repeat(np.arange(10), 1000)
    shares = label_shares(
        dirichlet_devices(y, range(10), 100, alpha, np.random.default_rng(1)), y, 10
    )
    assert shares[:20].max(axis=1).mean() > 0.95


def test_a_small_alpha_gives_a_label_to_few_devices() -> None:
    y = np.repeat(np.arange(100), 100)
    parts = dirichlet_labels(y, range(100), 10, 1e-3, np.random.default_rng(1))
    holders = np.array([[np.isin(y[part], label).any() for part in parts] for label in range(100)])
    assert holders.sum(axis=1).mean() < 1.5


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 30.0])
def test_priors_have_the_moments_of_the_dirichlet_law(alpha: float) -> None:
    # E[sum of q_l^2] = (alpha + 1) / (alpha L + 1).
    classes, runs = 10, 40_000
    squares = (_dirichlet(np.random.default_rng(2), alpha, (runs, classes)) ** 2).sum(axis=1)
    error = squares.std() / math.sqrt(runs)
    assert squares.mean() == pytest.approx((alpha + 1) / (alpha * classes + 1), abs=4 * error)


@given(st.floats(0, 1.7e308, exclude_min=True), st.integers(1, 20))
def test_priors_are_finite_and_sum_to_one_for_every_alpha(alpha: float, classes: int) -> None:
    priors = _dirichlet(np.random.default_rng(0), alpha, (5, classes))
    assert (priors >= 0).all()
    assert priors.sum(axis=1) == pytest.approx(1.0)


def test_the_first_devices_follow_dirichlet_priors() -> None:
    # A share q of Dir(alpha 1_L) has mean 1/L and variance (1/L)(1 - 1/L)/(alpha L + 1); counting
    # n samples adds (1/L)(1 - 1/L) alpha L / (alpha L + 1) / n.
    classes, alpha, quota, runs = 4, 0.5, 100, 2000
    y = np.repeat(np.arange(classes), quota)
    shares = np.array(
        [
            np.bincount(y[parts[0]], minlength=classes) / quota
            for seed in range(runs)
            for parts in [dirichlet_devices(y, range(4), 4, alpha, np.random.default_rng(seed))]
        ]
    )
    spread = alpha * classes
    variance = (1 / 4) * (3 / 4) / (spread + 1) * (1 + spread / quota)
    assert shares.mean(axis=0) == pytest.approx(1 / 4, abs=3 * math.sqrt(variance / runs))
    assert shares.var(axis=0) == pytest.approx(variance, rel=0.1)


def authors_draw(prior: list[float], left: list[bool], rng: np.random.Generator) -> int:
    """Draw a label as the authors do, one draw after another."""
    for _ in range(3 * len(prior) + 5):
        label = int(rng.choice(len(prior), p=prior))
        if left[label]:
            return label
    return int(rng.choice(np.flatnonzero(left)))


def test_the_closed_form_of_the_repeated_draw_agrees_with_the_draws() -> None:
    prior, left = [0.9, 0.0725, 0.02, 0.0075], [False, False, True, True]
    pools = [[1] if any_left else [] for any_left in left]
    filled, cumulative, failure = _open_labels(pools, prior, 17)
    success = cumulative[-1]
    third = (1 - failure) * prior[2] / success + failure / 2
    assert filled == [2, 3]
    assert failure == pytest.approx((1 - success) ** 17)
    rng = np.random.default_rng(3)
    runs = 3000
    drawn = sum(authors_draw(prior, left, rng) == 2 for _ in range(runs)) / runs
    assert drawn == pytest.approx(third, abs=3 * math.sqrt(third * (1 - third) / runs))


def test_no_share_of_a_full_device_survives_in_the_label_wise_split() -> None:
    # With one-hot splits the first label fills one device beyond N/K; the rest go elsewhere.
    y = np.array([0] * 60 + [1] * 20 + [2] * 20)
    for seed in range(20):
        parts = dirichlet_labels(
            y, range(3), 2, 1e-300, np.random.default_rng(seed), minimum=1, tries=1
        )
        assert sorted(len(part) for part in parts) == [40, 60]


def test_the_label_wise_split_ends_where_redrawing_never_would() -> None:
    y = np.repeat(np.arange(2), 200)
    parts = dirichlet_labels(y, range(2), 100, 1e-3, np.random.default_rng(0), minimum=4)
    assert [len(part) for part in parts] == [4] * 100
    assert used_exactly_once(parts, y, (0, 1))


@pytest.mark.parametrize("alpha", [0.001, 0.3])
@pytest.mark.parametrize("classes", [10, 100])
def test_sixty_thousand_samples_take_well_under_a_second(classes: int, alpha: float) -> None:
    y = np.random.default_rng(0).integers(classes, size=60_000)
    start = time.perf_counter()
    dirichlet_devices(y, range(classes), 100, alpha, np.random.default_rng(0))
    assert time.perf_counter() - start < 1.0


@partitions
@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_alpha_is_refused(partition: Partition, alpha: float) -> None:
    with pytest.raises(EbbflowError, match=rf"`partition.alpha` is {alpha}.*above 0"):
        partition(np.array([0, 0, 0]), (0,), 1, alpha, np.random.default_rng())


@partitions
@pytest.mark.parametrize("devices", [0, -3])
def test_no_devices_are_refused(partition: Partition, devices: int) -> None:
    with pytest.raises(EbbflowError, match=rf"`partition.devices` is {devices}; .*at least 1"):
        partition(np.array([0, 0, 0]), (0,), devices, 1.0, np.random.default_rng())


@partitions
def test_labels_without_samples_are_named(partition: Partition) -> None:
    y = np.array([0, 0, 2, 2])
    with pytest.raises(EbbflowError, match=r"the label 1, which.*leave these labels out"):
        partition(y, (0, 1), 1, 1.0, np.random.default_rng())
    with pytest.raises(EbbflowError, match="the labels 1, 5, which"):
        partition(y, (5, 2, 1), 1, 1.0, np.random.default_rng())


@partitions
def test_no_label_is_refused(partition: Partition) -> None:
    with pytest.raises(EbbflowError, match=r"no label.*`partition.overlap`"):
        partition(np.array([0, 0]), (), 1, 1.0, np.random.default_rng())


def test_more_devices_than_samples_are_refused_up_to_the_last_that_fits() -> None:
    y, rng = np.array([0, 0, 0, 1]), np.random.default_rng()
    assert [len(part) for part in dirichlet_devices(y, (0,), 3, 1.0, rng)] == [1, 1, 1]
    with pytest.raises(EbbflowError, match=r"4 devices .* one sample each of only 3 .*`partition"):
        dirichlet_devices(y, (0,), 4, 1.0, rng)
    assert [len(part) for part in dirichlet_labels(y, (0, 1), 2, 1.0, rng)] == [2, 2]
    with pytest.raises(EbbflowError, match=r"2 devices .* 3 samples each of only 4 .*`minimum`"):
        dirichlet_labels(y, (0, 1), 2, 1.0, rng, minimum=3)


@pytest.mark.parametrize("key", ["minimum", "tries"])
def test_a_minimum_or_tries_below_one_are_refused(key: str) -> None:
    with pytest.raises(EbbflowError, match=rf"`{key}` is 0.*at least 1"):
        dirichlet_labels(np.array([0, 0]), (0,), 1, 1.0, np.random.default_rng(), **{key: 0})
