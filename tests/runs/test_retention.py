"""Which past sessions are kept."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.types import ModelState, PastSession
from ebbflow.runs import retention
from ebbflow.runs.retention import Retention, keep_all, keep_diverse, keep_last

Points = list[tuple[int, int]]
points = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9)
limits = st.integers(1, 6)


def entries(places: Points) -> list[PastSession]:
    return [
        PastSession(z, ModelState(torch.zeros(0), torch.zeros(0)), torch.tensor(place).float())
        for z, place in enumerate(places, start=2)
    ]


def apart(a: PastSession, b: PastSession) -> float:
    assert a.signature is not None
    assert b.signature is not None
    return float((a.signature - b.signature).norm())


def spread(kept: list[PastSession]) -> float:
    return min((apart(a, b) for a, b in itertools.combinations(kept, 2)), default=math.inf)


@given(points, limits)
def test_every_rule_keeps_at_most_the_limit_in_order(places: Points, limit: int) -> None:
    rules: dict[Retention, int] = {
        keep_all: len(places),
        keep_last(limit): limit,
        keep_diverse(limit, apart): limit,
    }
    for rule, most in rules.items():
        kept = rule(entries(places))
        assert list(kept) == sorted(set(kept))
        assert len(kept) == min(most, len(places))
        assert set(kept) <= set(range(len(places)))


@given(points, limits)
def test_last_keeps_the_newest(places: Points, limit: int) -> None:
    assert keep_last(limit)(entries(places)) == list(range(len(places)))[-limit:]


@given(points, limits)
def test_diverse_is_the_best_of_all_subsets(places: Points, limit: int) -> None:
    given_entries = entries(places)
    kept = keep_diverse(limit, apart)(given_entries)
    best = max(
        spread(list(subset))
        for subset in itertools.combinations(given_entries, min(limit, len(places)))
    )
    assert spread([given_entries[i] for i in kept]) == best


@given(points, limits)
def test_grown_one_at_a_time_diverse_is_the_best_at_every_step(places: Points, limit: int) -> None:
    rule = keep_diverse(limit, apart)
    kept: list[PastSession] = []
    for entry in entries(places):
        grown = [*kept, entry]
        kept = [grown[i] for i in rule(grown)]
        assert len(kept) <= limit
        subsets = itertools.combinations(grown, min(limit, len(grown)))
        assert spread(kept) == max(spread(list(subset)) for subset in subsets)


def test_a_session_seen_again_replaces_its_older_twin() -> None:
    a, b = (0, 0), (9, 9)
    kept = keep_diverse(2, apart)(entries([a, b, a]))
    assert kept == [1, 2]
    assert keep_diverse(1, apart)(entries([a, b, a])) == [2]
    assert keep_diverse(2, apart)(entries([a, b, a, b])) == [2, 3]


def test_a_history_too_long_to_try_every_subset_still_spreads() -> None:
    clusters = [(1000 * (i % 10), i // 10) for i in range(40)]
    assert math.comb(40, 10) > retention.EXHAUSTIVE
    kept = keep_diverse(10, apart)(entries(clusters))
    assert len(kept) == 10
    assert {i % 10 for i in kept} == set(range(10))


@pytest.mark.parametrize("limit", [3, 20])
def test_all_is_kept_while_there_is_room(limit: int) -> None:
    assert keep_diverse(limit, apart)(entries([(0, 0), (0, 0), (1, 1)])) == [0, 1, 2]
