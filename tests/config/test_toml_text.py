"""Settings as TOML: what is written is what is read."""

from __future__ import annotations

import math
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ebbflow.config.toml_text import toml

KEYS = st.text("az_-09", min_size=1, max_size=4)
PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text("az \\\"'#=[]{}\t\né√😀"),
)
SECTIONS = st.dictionaries(
    KEYS, st.dictionaries(KEYS, PLAIN | st.lists(PLAIN, max_size=3), max_size=3), max_size=3
)


@given(SECTIONS)
def test_what_is_written_is_read_again(sections: dict[str, dict[str, Any]]) -> None:
    flat = {f"s.{a}.{b}": value for a, keys in sections.items() for b, value in keys.items()}
    read = tomllib.loads(toml(flat, dict.fromkeys(flat, "a comment"))).get("s", {})
    assert read == {name: keys for name, keys in sections.items() if keys}


def test_keys_of_a_section_need_not_stand_together() -> None:
    text = toml({"a.b": 1, "c": 2, "d.e.f": "x", "a.g": math.inf})
    assert tomllib.loads(text) == {"c": 2, "a": {"b": 1, "g": math.inf}, "d": {"e": {"f": "x"}}}
    assert text.startswith("c = 2\n\n[a]\nb = 1\ng = inf\n")
