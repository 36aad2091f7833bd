"""Rosters say who is here, and participants are drawn by their law."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any, Literal, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.data.schedule import Presence, alternating, certain_size, participants

Shares = tuple[float, float, float]
"""How often each of three devices is drawn."""


def test_alternating_groups_take_turns() -> None:
    roster = alternating(5, 10)
    a, b = Presence(tuple(range(10))), Presence(tuple(range(10, 20)))
    assert roster.sessions == (a, b, a, b, a)
    assert len(set(roster.names)) == 20


@pytest.mark.parametrize(("sessions", "devices"), [(0, 5), (5, 0)])
def test_alternating_needs_a_session_and_a_device(sessions: int, devices: int) -> None:
    with pytest.raises(EbbflowError, match=r"`(sessions|partition.devices)` is 0"):
        alternating(sessions, devices)


@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 50), min_size=1, max_size=30),
    st.one_of(st.none(), st.integers(1, 40), st.floats(0.001, 1.0)),
    st.sampled_from(["uniform", "weighted"]),
)
def test_participants_are_devices_in_order_without_repetition(
    seed: int, sizes: list[int], share: float | int | None, weighting: Any
) -> None:
    devices = tuple(range(100, 100 + 3 * len(sizes), 3))
    chosen, again = (
        participants(np.random.default_rng(seed), devices, sizes, share, weighting)
        for _ in range(2)
    )
    assert chosen == again
    assert chosen == tuple(device for device in devices if device in chosen)
    if share is None:
        assert chosen == devices
    elif isinstance(share, int):
        assert len(chosen) == min(share, len(devices))
    else:
        assert abs(len(chosen) - share * len(devices)) <= 0.5 + 1e-5 or len(chosen) == 1


@pytest.mark.parametrize(
    ("present", "share", "count"),
    [(10, 0.25, 3), (10, 0.24, 2), (10, 0.01, 1), (100, 0.145, 15), (7, 1.0, 7), (7, 1, 1)],
)
def test_fractions_round_halves_up_and_whole_numbers_count(
    present: int, share: float, count: int
) -> None:
    devices = range(present)
    assert len(participants(np.random.default_rng(0), devices, devices, share, "uniform")) == count


def test_the_draw_follows_the_weighting() -> None:
    rng, runs = np.random.default_rng(0), 4000
    sizes = (1, 2, 7)
    cases: list[tuple[Literal["uniform", "weighted"], Shares, Shares]] = [
        ("uniform", (1 / 3, 1 / 3, 1 / 3), (2 / 3, 2 / 3, 2 / 3)),
        # Two of three: the largest would have to come 1.4 times, so it always comes.
        ("weighted", (0.1, 0.2, 0.7), (1 / 3, 2 / 3, 1)),
    ]
    for weighting, first, both in cases:
        for count, expected in [(1, first), (2, both)]:
            drawn = Counter(
                device
                for _ in range(runs)
                for device in participants(rng, (0, 1, 2), sizes, count, weighting)
            )
            for device, p in enumerate(expected):
                assert drawn[device] / runs == pytest.approx(
                    p, abs=4 * math.sqrt(p * (1 - p) / runs)
                )


class Told:
    """A generator that gives what it was told, to go through all that one could give."""

    def __init__(self, order: tuple[int, ...], number: float) -> None:
        self.order, self.number = order, number

    def permutation(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return values[list(self.order)]

    def random(self) -> float:
        return self.number


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("sizes", "certain"),
    [
        ((3, 3, 3, 3, 3), (0, 0, 0, 0)),
        ((1, 2, 3, 4, 5), (0, 0, 1, 3)),
        ((1, 1, 1, 1, 96), (0, 1, 1, 1)),
        ((1, 1, 2, 20, 40), (0, 1, 2, 3)),
    ],
    ids=str,
)
def test_weighted_participants_speak_for_all_samples(
    sizes: tuple[int, ...], certain: tuple[int, ...], count: int
) -> None:
    """Of all draws there are, exactly: no device counts more or less than its D_k on average.

    Whom the points hit changes where one of them passes an end: at multiples of one over all
    samples of the devices that may be missing.
    """
    c = certain_size(sizes, count)
    open_to_chance = [size for size in sizes if size < c]
    assert len(sizes) - len(open_to_chance) == certain[count - 1]
    cells, drawn = sum(open_to_chance), Counter[int]()
    orders = list(itertools.permutations(range(len(open_to_chance))))
    for order in orders:
        for cell in range(cells):
            told = cast(np.random.Generator, Told(order, (cell + 0.5) / cells))
            chosen = participants(told, range(5), sizes, count, "weighted")
            assert len(set(chosen)) == count
            assert sum(max(sizes[device], c) for device in chosen) == pytest.approx(sum(sizes))
            drawn.update(chosen)
    for device, size in enumerate(sizes):
        share = drawn[device] / (len(orders) * cells)
        assert share == pytest.approx(min(1.0, size / c))
        assert share * max(size, c) == pytest.approx(size)


def test_nobody_is_more_than_certain_if_all_take_part() -> None:
    assert certain_size((1, 2, 7), 3) == 0


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, math.nan, 0, -2])
def test_a_bad_share_is_refused(share: float) -> None:
    with pytest.raises(EbbflowError, match=rf"share of {share} .*; set `participation.share`"):
        participants(np.random.default_rng(), (1, 2), (5, 5), share, "uniform")


def test_an_empty_session_an_empty_device_and_an_unknown_weighting_are_refused() -> None:
    rng = np.random.default_rng()
    with pytest.raises(EbbflowError, match="No device is present"):
        participants(rng, (), (), None, "uniform")
    with pytest.raises(EbbflowError, match=r"Device 2 holds 0 samples.*'uniform'"):
        participants(rng, (1, 2), (5, 0), 1, "weighted")
    with pytest.raises(EbbflowError, match=r"`participation.weighting` is 'loud'; set it"):
        participants(rng, (1, 2), (5, 5), 1, "loud")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="2 devices but 1 sizes"):
        participants(rng, (1, 2), (5,), 1, "uniform")
