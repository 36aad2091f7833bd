"""Sizes of blocks are tried where they fit, and then settled."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ebbflow.core.algorithm import Algorithm
from ebbflow.engines import Vectorised
from ebbflow.engines.tuning import TRIALS, BlockTuner
from ebbflow.models import from_module
from tests.engines.rounds import CLASSES, RECIPE, cohort, examples, lane


@given(st.integers(0, 200), st.lists(st.integers(0, 100), min_size=1, max_size=50))
def test_no_block_is_larger_than_a_worker_s_share(most: int, shares: list[int]) -> None:
    tuner = BlockTuner(most)
    for share in shares:
        size = tuner.next(share)
        assert 1 <= size <= max(1, share)
        tuner.took(size, size, 1.0)


@given(st.integers(1, 200), st.integers(1, 100))
def test_every_size_that_fits_is_tried_and_the_fastest_is_taken(most: int, share: int) -> None:
    tuner = BlockTuner(most)
    fitting = [size for size in tuner.sizes if size <= share]
    fastest = fitting[len(fitting) // 2]
    tried = []
    for _ in range(TRIALS * len(fitting)):
        tried.append(tuner.next(share))
        distance = abs(math.log2(tried[-1]) - math.log2(fastest))
        tuner.took(tried[-1], tried[-1], tried[-1] * (1 + distance))
    assert sorted(tried) == sorted(fitting * TRIALS)
    assert tuner.next(share) == fastest


@given(st.sets(st.sampled_from([1, 2, 4, 8, 16]), min_size=1))
def test_a_disturbance_during_the_first_blocks_is_forgotten(disturbed: set[int]) -> None:
    """A run once went at half its speed because the best sizes were tried at a bad moment."""
    tuner = BlockTuner(16)
    rounds: list[list[int]] = []
    for number in range(40):
        rounds.append([])
        for length in tuner.lengths(64, workers=2):
            rounds[-1].append(length)
            slower = 50 if number < 3 and length in disturbed else 1
            tuner.took(length, length, slower * (length + 8))  # per sample, 16 takes least
    assert rounds[-1] == [16, 16, 16, 16]
    assert sum(len(set(lengths)) > 1 for lengths in rounds) <= 7  # rounds with trials


@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 40))
def test_blocks_of_the_chosen_size_give_all_workers_the_same(
    devices: int, workers: int, most: int
) -> None:
    tuner = BlockTuner(most)
    tried: list[int] = []
    while len(tried) < 1000:
        lengths = list(tuner.lengths(devices, workers))
        assert sum(lengths) == devices
        assert all(1 <= length <= most for length in lengths)
        if not tuner.untried(-(-devices // workers)):
            break
        for length in lengths:
            tuner.took(length, length, 1.0)
        tried += lengths
    assert max(lengths) - min(lengths) <= 1
    assert len(lengths) % workers == 0 or len(lengths) == devices
    assert max(lengths) <= 2 * tuner.next(-(-devices // workers))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_few_devices_are_divided_among_all_workers(workers: int) -> None:
    """Blocks as large as the cohort were never timed in full, and so tried for ever."""
    layers = nn.Flatten(), nn.Linear(64, 5), nn.LayerNorm(5), nn.Linear(5, CLASSES)
    model = from_module(lambda: nn.Sequential(*layers))
    engine = Vectorised(model, examples(), RECIPE, workers=workers)
    who = cohort([(4, 4)] * 20)
    at = lane(model, Algorithm("a"))
    try:
        for _ in range(4 * TRIALS):
            engine([at], who)
        (tuner,) = engine._tuners.values()
        share = -(-20 // workers)
        assert tuner.sizes[-1] > 20
        for size in tuner.sizes:
            tried = len(tuner._times[size])
            assert tried in ((TRIALS, TRIALS + 1) if size <= share else (0,))
    finally:
        engine.close()
