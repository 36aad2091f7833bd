"""Rates follow the formula, and a file of rates is read or refused in a sentence."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rates import polynomial_rates, read_rates

positive = st.floats(1e-4, 10)
share = st.floats(0, 1)


@given(positive, share, st.floats(0, 4), st.integers(1, 50))
def test_rates_fall_from_the_initial_one_and_stay_above_the_floor(
    initial: float, floor: float, power: float, rounds: int
) -> None:
    rates = polynomial_rates(initial, floor, power, rounds)
    assert len(rates) == rounds
    assert rates[0] == pytest.approx(initial)
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(rates))
    assert all(rate >= floor * initial * (1 - 1e-12) for rate in rates)


def test_power_one_is_a_straight_line() -> None:
    assert polynomial_rates(0.4, 0.0, 1.0, 4) == pytest.approx((0.4, 0.3, 0.2, 0.1))


def test_the_excess_over_the_floor_is_the_power_of_what_is_left() -> None:
    rates = polynomial_rates(1.0, 0.2, 3.0, 10)
    assert rates[5] == pytest.approx(0.2 + 0.8 * 0.5**3)


@given(positive, st.floats(0, 4), st.integers(1, 20))
def test_a_floor_of_one_is_a_constant_rate(initial: float, power: float, rounds: int) -> None:
    assert polynomial_rates(initial, 1.0, power, rounds) == (initial,) * rounds


@given(st.lists(positive, min_size=1, max_size=9))
def test_a_list_and_lines_hold_the_same_rates(
    tmp_path_factory: pytest.TempPathFactory, rates: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("rates")
    (folder / "rates.json").write_text(json.dumps(rates), encoding="utf-8")
    (folder / "rates.txt").write_text("\n".join(map(repr, rates)) + "\n", encoding="utf-8")
    assert read_rates(folder / "rates.json", len(rates)) == tuple(rates)
    assert read_rates(folder / "rates.txt", len(rates)) == tuple(rates)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.1\nfast\n", "should hold a JSON list of rates or one rate per line"),
        ("[0.1, 0.2", "should hold a JSON list of rates or one rate per line"),
        ("[[0.1]]", "should hold a JSON list of rates or one rate per line"),
        ("0.1, 0.2", "should hold a JSON list of rates or one rate per line"),
        ("[0.1, 0]", "holds a rate that is not a positive number"),
        ("0.1\n-0.1", "holds a rate that is not a positive number"),
        ("[NaN, 0.1]", "holds a rate that is not a positive number"),
        ("inf 0.1", "holds a rate that is not a positive number"),
        ("[0.1]", "holds 1 rates and a session has 2 rounds: add rates or lower rounds"),
        ("", "holds 0 rates and a session has 2 rounds: add rates or lower rounds"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "rates"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EbbflowError) as caught:
        read_rates(path, 2)
    assert str(caught.value) == f'lr.file = "{path}" {sentence}'


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        EbbflowError, match=r'lr\.file = ".*absent" cannot be read .*check the path'
    ):
        read_rates(tmp_path / "absent", 1)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rates").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EbbflowError, match="cannot be read"):
        read_rates(tmp_path / "rates", 1)


def test_a_device_or_a_pipe_is_refused_and_not_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(EbbflowError, match=r"lr\.file = .* is a device or a pipe: name a file"):
            read_rates(path, 1)
