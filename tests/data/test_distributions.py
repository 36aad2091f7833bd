"""The appendix's label distributions: no sample twice, none lost, and the labels that are due."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.data.distributions import (
    DISTRIBUTIONS,
    Allocation,
    distinct,
    half,
    overlapping_labels,
    partial_overlap,
    two_shard,
)

Array = NDArray[Any]

kinds = pytest.mark.parametrize("kind", DISTRIBUTIONS)
label_numbers = pytest.mark.parametrize("classes", [4, 10, 100, 200])
device_numbers = pytest.mark.parametrize("devices", [7, 20, 100, 101])
few = settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow], deadline=None)
seeds = st.integers(0, 2**32)


def labels_of_samples(classes: int, seed: int, least: int | None = None) -> Array:
    """Return shuffled labels; of each there are enough for 101 devices, but not equally many."""
    rng = np.random.default_rng(seed)
    least = least or max(12, 240 // classes)
    y = np.repeat(np.arange(classes), rng.integers(least, 2 * least, classes))
    return rng.permutation(y).astype(rng.choice(["uint8", "int64"]))


def counts_of(found: Allocation, y: Array, classes: int) -> Array:
    """Return the number of samples per device and label."""
    return np.array([np.bincount(y[shard], minlength=classes) for shard in found.shards])


def spread(values: Array, axis: int = 0) -> int:
    """Return the largest difference along an axis."""
    return int(np.ptp(values, axis=axis).max())


def span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


# --- all kinds -----------------------------------------------------------------------------------


@kinds
@label_numbers
@device_numbers
@few
@given(seed=seeds)
def test_no_sample_is_held_twice_no_device_is_empty_and_the_groups_are_halves(
    kind: str, classes: int, devices: int, seed: int
) -> None:
    y = labels_of_samples(classes, seed)
    found = DISTRIBUTIONS[kind](y, classes, devices, np.random.default_rng(seed))
    assert len(found.shards) == devices
    rows = np.concatenate(found.shards)
    assert len(np.unique(rows)) == len(rows)
    assert min(map(len, found.shards)) >= 1
    for shard in found.shards:
        assert shard.dtype == np.int64
        assert (np.diff(shard) > 0).all()
    # What the docstrings leave out: label 3 of 4, and labels beyond the number of shards.
    unused = classes - len(np.unique(y[rows]))
    if (kind, classes) == ("partial_overlap", 4):
        assert sorted(rows.tolist()) == np.flatnonzero(y != 3).tolist()
    elif (kind, classes, devices) == ("two_shard", 200, 7):
        assert unused == 200 - 20 * 7
    else:
        assert sorted(rows.tolist()) == list(range(len(y)))
    first, second = found.groups
    assert (len(first), len(second)) == (devices // 2, devices - devices // 2)
    assert sorted(first + second) == list(range(devices))
    assert (first, second) == (tuple(sorted(first)), tuple(sorted(second)))
    if kind in ("half", "partial_overlap"):
        assert first == span(0, devices // 2 - 1)


@kinds
@label_numbers
def test_the_draw_depends_on_the_generator_alone(kind: str, classes: int) -> None:
    y = labels_of_samples(classes, 0)
    one, same, other = (
        DISTRIBUTIONS[kind](y, classes, 20, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert one.groups == same.groups
    for a, b in zip(one.shards, same.shards, strict=True):
        np.testing.assert_array_equal(a, b)
    if kind != "distinct" or classes != 200:  # there every device has all samples of its labels
        assert any(a.tolist() != b.tolist() for a, b in zip(one.shards, other.shards, strict=True))


@pytest.mark.parametrize("kind", ["two_shard", "distinct"])
def test_random_halves_differ_from_seed_to_seed_and_not_with_the_data(kind: str) -> None:
    groups = [
        DISTRIBUTIONS[kind](labels_of_samples(10, data), 10, 20, np.random.default_rng(seed)).groups
        for data, seed in [(0, 1), (5, 1), (0, 2)]
    ]
    assert groups[0] == groups[1]
    assert groups[0] != groups[2]


@kinds
@given(data=st.data())
def test_any_number_of_labels_and_devices_will_do(kind: str, data: st.DataObject) -> None:
    classes = data.draw(st.integers(3 if kind == "partial_overlap" else 2, 30))
    devices = data.draw(st.integers(2, 30))
    y = np.repeat(np.arange(classes), data.draw(st.integers(60, 63)))
    found = DISTRIBUTIONS[kind](y, classes, devices, np.random.default_rng(0))
    rows = np.concatenate(found.shards)
    assert len(found.shards) == devices
    assert min(map(len, found.shards)) >= 1
    assert len(np.unique(rows)) == len(rows)
    used = len(np.unique(y[rows]))
    if kind == "two_shard":
        assert used == min(classes, 2 * devices)
    else:
        assert used == classes - ((kind, classes) == ("partial_overlap", 4))
    assert len(rows) == used * (len(y) // classes)


# --- half and partial_overlap --------------------------------------------------------------------


@label_numbers
@device_numbers
@few
@given(seed=seeds)
def test_half_gives_every_device_all_labels_of_its_half_evenly(
    classes: int, devices: int, seed: int
) -> None:
    y = labels_of_samples(classes, seed)
    found = half(y, classes, devices, np.random.default_rng(seed))
    counts = counts_of(found, y, classes)
    numbers = np.bincount(y, minlength=classes)
    halves = (range(classes // 2), range(classes // 2, classes))
    for group, labels in zip(found.groups, halves, strict=True):
        own = counts[list(group)]
        others = [label for label in range(classes) if label not in labels]
        assert not own[:, others].any()
        assert spread(own) <= 1
        assert spread(own.sum(axis=1)) <= 1
        enough = [label for label in labels if numbers[label] >= len(group)]
        assert (own[:, enough] >= 1).all()


def test_half_does_not_tie_scarce_labels_to_some_devices() -> None:
    # 50 samples of each of 100 labels for 100 devices: every second one would get the even labels.
    y = np.repeat(np.arange(200), 50)
    counts = counts_of(half(y, 200, 200, np.random.default_rng(0)), y, 200)
    even = counts[:100, 0:100:2].sum(axis=1)
    # Each device has 50 of these labels; 25 +- 3.5 (hypergeometric) of them are even.
    assert counts[:100].sum(axis=1).tolist() == [50] * 100
    assert even.min() > 5
    assert even.max() < 45


@pytest.mark.parametrize(
    ("classes", "first", "second"),
    [
        (3, (0, 1), (1, 2)),
        (4, (0, 2), (1, 2)),
        (5, span(0, 2), span(2, 4)),
        (6, span(0, 3), span(2, 5)),
        (7, span(0, 3), span(3, 6)),
        (10, span(0, 5), span(4, 9)),
        (100, span(0, 59), span(40, 99)),
        (200, span(0, 119), span(80, 199)),
    ],
)
def test_labels_of_the_partial_overlap(
    classes: int, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    assert overlapping_labels(classes) == (first, second)


@given(st.integers(5, 1000))
def test_the_overlap_is_as_near_as_it_can_be_to_sixty_and_twenty_per_cent(classes: int) -> None:
    first, second = overlapping_labels(classes)
    shared = set(first) & set(second)
    assert set(first) | set(second) == set(range(classes))
    assert len(first) == len(second)
    # All labels are used, so both move together: one label more in each set is two more shared.
    assert abs(len(first) - 0.6 * classes) < 0.5
    assert abs(len(shared) - 0.2 * classes) < 1
    assert shared


@label_numbers
@device_numbers
@few
@given(seed=seeds)
def test_partial_overlap_halves_the_shared_labels_and_spreads_all_evenly(
    classes: int, devices: int, seed: int
) -> None:
    y = labels_of_samples(classes, seed)
    found = partial_overlap(y, classes, devices, np.random.default_rng(seed))
    counts = counts_of(found, y, classes)
    numbers = np.bincount(y, minlength=classes)
    sides = overlapping_labels(classes)
    for group, labels in zip(found.groups, sides, strict=True):
        own = counts[list(group)]
        assert set(np.flatnonzero(own.sum(axis=0)).tolist()) == set(labels)
        assert spread(own) <= 1
        assert spread(own.sum(axis=1)) <= 1
    for label in set(sides[0]) & set(sides[1]):
        parts = [int(counts[list(group), label].sum()) for group in found.groups]
        assert parts == [numbers[label] // 2, numbers[label] - numbers[label] // 2]


# --- two_shard -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "each"), [(10, 2), (200, 20)])
@device_numbers
@few
@given(seed=seeds)
def test_two_shard_gives_every_device_shards_of_different_labels(
    classes: int, each: int, devices: int, seed: int
) -> None:
    y = labels_of_samples(classes, seed)
    counts = counts_of(two_shard(y, classes, devices, np.random.default_rng(seed)), y, classes)
    assert ((counts > 0).sum(axis=1) == each).all()
    shards = (counts > 0).sum(axis=0)
    exact = each * devices / classes
    assert set(shards.tolist()) <= {int(np.floor(exact)), int(np.ceil(exact))}
    numbers = np.bincount(y, minlength=classes)
    for label in np.flatnonzero(shards).tolist():
        sizes = counts[counts[:, label] > 0, label]
        assert sizes.sum() == numbers[label]
        assert spread(sizes) <= 1
    # The labels with one shard more, or with any, are the largest.
    more = shards > shards.min()
    if more.any():
        assert numbers[more].min() >= numbers[~more].max()


@device_numbers
@few
@given(seed=seeds)
def test_two_shard_cuts_a_hundred_labels_in_ten_batches(devices: int, seed: int) -> None:
    y = labels_of_samples(100, seed, least=24)  # with 101 devices a batch has 21 shards
    counts = counts_of(two_shard(y, 100, devices, np.random.default_rng(seed)), y, 100)
    # Labels that the same devices hold are a batch (or two that went to the same devices).
    holders: dict[bytes, list[int]] = {}
    for label in range(100):
        holders.setdefault((counts[:, label] > 0).tobytes(), []).append(label)
    assert len(holders) <= 10
    assert all(len(batch) % 10 == 0 for batch in holders.values())
    assert ((counts > 0).sum(axis=1) == 20).all()
    for batch in holders.values():
        own = counts[counts[:, batch[0]] > 0]
        assert spread(own[:, batch]) <= 1
    assert any(b - a > 1 for batch in holders.values() for a, b in pairwise(batch))


@device_numbers
@few
@given(seed=seeds)
def test_two_shard_of_four_labels_gives_two_random_shards(devices: int, seed: int) -> None:
    y = labels_of_samples(4, seed)
    counts = counts_of(two_shard(y, 4, devices, np.random.default_rng(seed)), y, 4)
    numbers = np.bincount(y, minlength=4)
    held = (counts > 0).sum(axis=1)
    assert set(held.tolist()) <= {1, 2}
    shards = []
    for label in range(4):
        column = counts[:, label]
        # One shard beside another label, two on a device with this label alone.
        single, double = column[(column > 0) & (held == 2)], column[(column > 0) & (held == 1)]
        shards.append(len(single) + 2 * len(double))
        size = numbers[label] / shards[-1]
        assert (np.abs(single - size) < 1).all()
        assert (np.abs(double - 2 * size) < 2).all()
    assert sum(shards) == 2 * devices
    assert max(shards) - min(shards) <= 1


def test_shards_of_four_labels_may_coincide() -> None:
    y = labels_of_samples(4, 0)
    counts = counts_of(two_shard(y, 4, 100, np.random.default_rng(0)), y, 4)
    assert {1, 2} == set((counts > 0).sum(axis=1).tolist())


def test_two_shard_is_the_papers_with_ten_labels_and_ten_devices() -> None:
    y = np.repeat(np.arange(10), 20)
    partners = set()
    for seed in range(20):
        counts = counts_of(two_shard(y, 10, 10, np.random.default_rng(seed)), y, 10)
        assert set(counts.ravel().tolist()) == {0, 10}
        assert ((counts > 0).sum(axis=0) == 2).all()
        partners |= {tuple(np.flatnonzero(row).tolist()) for row in counts}
    assert len(partners) > 40  # of 45 pairs: which labels meet is random


@pytest.mark.parametrize(("classes", "devices"), [(10, 4), (200, 5)])
def test_labels_without_a_shard_are_those_with_the_fewest_samples(
    classes: int, devices: int
) -> None:
    y = np.repeat(np.arange(classes), 10 + np.arange(classes))
    found = two_shard(y, classes, devices, np.random.default_rng(0))
    shards = devices * (2 if classes == 10 else 20)
    used = np.unique(y[np.concatenate(found.shards)]).tolist()
    assert used == list(range(classes - shards, classes))


# --- distinct ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "blocks"), [(4, 4), (10, 10), (100, 10), (200, 20)])
@device_numbers
@few
@given(seed=seeds)
def test_distinct_gives_every_device_its_block(
    classes: int, blocks: int, devices: int, seed: int
) -> None:
    y = labels_of_samples(classes, seed)
    counts = counts_of(distinct(y, classes, devices, np.random.default_rng(seed)), y, classes)
    holdings: dict[tuple[int, ...], list[int]] = {}
    for device, row in enumerate(counts):
        holdings.setdefault(tuple(np.flatnonzero(row).tolist()), []).append(device)
    assert len(holdings) == min(blocks, devices)
    # Consecutive labels in order, none in two blocks; neighbours share a block.
    assert [label for labels in holdings for label in labels] == list(range(classes))
    assert [device for group in holdings.values() for device in group] == list(range(devices))
    assert spread(np.array([len(labels) for labels in holdings])) <= 1
    assert spread(np.array([len(group) for group in holdings.values()])) <= 1
    for labels, group in holdings.items():
        own = counts[np.ix_(group, labels)]
        assert spread(own) <= 1
        assert spread(own.sum(axis=1)) <= 1


@pytest.mark.parametrize(
    ("classes", "devices", "each"), [(10, 10, 1), (100, 10, 10), (200, 20, 10)]
)
def test_distinct_is_the_papers_with_a_device_per_block(
    classes: int, devices: int, each: int
) -> None:
    y = labels_of_samples(classes, 0)
    found = distinct(y, classes, devices, np.random.default_rng(0))
    for device, shard in enumerate(found.shards):
        assert np.unique(y[shard]).tolist() == list(range(each * device, each * (device + 1)))


# --- what is refused -----------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("devices", [1, 0, -2])
def test_two_halves_need_two_devices(kind: str, devices: int) -> None:
    y = labels_of_samples(10, 0)
    with pytest.raises(EbbflowError, match=rf"`partition.devices` is {devices}, .*at least 2"):
        DISTRIBUTIONS[kind](y, 10, devices, np.random.default_rng())


@kinds
def test_a_single_label_is_refused(kind: str) -> None:
    with pytest.raises(EbbflowError, match=r"1 classes, too few .*at least 2"):
        DISTRIBUTIONS[kind](np.zeros(9, dtype=np.int64), 1, 2, np.random.default_rng())


def test_two_labels_cannot_overlap_in_part() -> None:
    with pytest.raises(EbbflowError, match=r"2 classes, too few .*at least 3 .*`partition.kind`"):
        partial_overlap(np.array([0, 1] * 9), 2, 2, np.random.default_rng())


@kinds
def test_more_devices_than_samples_are_refused(kind: str) -> None:
    y = np.repeat(np.arange(10), 2)
    with pytest.raises(EbbflowError, match=r"21 devices .* only 20 training.*`partition.devices`"):
        DISTRIBUTIONS[kind](y, 10, 21, np.random.default_rng())


@pytest.mark.parametrize(
    ("kind", "shares", "samples"),
    [("two_shard", 4, 1), ("half", 10, 5), ("partial_overlap", 10, 5), ("distinct", 2, 1)],
)
def test_labels_with_too_few_samples_are_refused(kind: str, shares: int, samples: int) -> None:
    y = np.repeat(np.arange(10), [1] * 5 + [3] * 5)
    message = rf"{shares} shares cannot be made of the {samples} .*lower `partition.devices`"
    with pytest.raises(EbbflowError, match=message):
        DISTRIBUTIONS[kind](y, 10, 20, np.random.default_rng(0))


@kinds
def test_labels_without_samples_are_named(kind: str) -> None:
    y = np.array([0, 1, 2, 3, 5, 6, 7, 9] * 9)
    with pytest.raises(EbbflowError, match="the labels 4, 8, which the partition is to spread"):
        DISTRIBUTIONS[kind](y, 10, 4, np.random.default_rng())
