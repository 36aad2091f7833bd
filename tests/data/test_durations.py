"""Durations mean what they say, and others are refused with how to write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.config.merge import Layers
from ebbflow.core.errors import EbbflowError
from ebbflow.data.traces.durations import UNITS, about, in_seconds, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1d", 86_400.0),
        ("90s", 90.0),
        ("2h30m", 9_000.0),
        ("2h 30min", 9_000.0),
        (" 1.5 h ", 5_400.0),
        ("2w", 1_209_600.0),
        ("250ms", 0.25),
        ("1us", 1e-6),
        (".5s", 0.5),
        ("0.1s", 0.1),
        ("1w2d3h4m5s6ms7us", 788_645.006007),
        ("1d0h", 86_400.0),
    ],
)
def test_a_duration_is_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


@given(st.lists(st.integers(0, 999), min_size=len(UNITS), max_size=len(UNITS)).filter(any))
def test_parts_add_up(counts: list[int]) -> None:
    parts = [(count, unit) for count, unit in zip(counts, UNITS, strict=True) if count]
    text = "".join(f"{count}{unit}" for count, unit in parts)
    assert seconds(text) == pytest.approx(sum(count * float(UNITS[unit]) for count, unit in parts))


@given(st.floats(1e-6, 1e9))
def test_what_is_shown_can_be_read_again(length: float) -> None:
    assert seconds(about(length)) == pytest.approx(length, rel=6e-3)


@given(st.floats(min_value=1e-3, max_value=1e12))
def test_a_plain_number_stays_what_it_is(number: float) -> None:
    assert in_seconds(number) == number


REFUSED = [
    ("", "is no duration; write numbers with the units w, d, h"),
    ("d", "'d' is no duration; write"),
    ("one day", "is no duration"),
    ("1 day", "the unknown unit 'day'; write"),
    ("1D", "the unknown unit 'D'"),
    ("1M", "the unknown unit 'M'"),
    ("3 months", "the unknown unit 'months'"),
    ("5", r"'5' has no unit; write a plain number without quotes, .*\"5s\""),
    ("1e3", "'1e3' has no unit"),
    ("-1h", "'-1h' is no duration"),
    ("1e3s", "unknown unit 'e'"),
    ("30m2h", "each unit once, the largest first"),
    ("1h1h", "each unit once, the largest first"),
    ("1m1min", "each unit once, the largest first"),
    ("0s", "'0s' is no time at all; give more than zero"),
    ("1h,30m", "'1h,30m' is no duration"),
    ("1:30", "'1:30' is no duration"),
    ("1" * 61 + "s", "at most 60 characters"),
    ("\u0661s", "is no duration"),
    ("inf", "is no duration"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_anything_else_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        seconds(text)


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_a_setting_is_refused_in_the_same_words(text: str, sentence: str) -> None:
    layers = Layers()
    layers.add_key("schedule.interval", text, "argument settings")
    with pytest.raises(EbbflowError, match=f"is refused: .*{sentence}") as caught:
        layers.config()
    assert str(caught.value).startswith("schedule.interval = ")
