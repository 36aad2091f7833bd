"""Lines of a run's files: whatever an event says is read back as it was."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.runs.records import line_of, object_of_line, read_lines

# With halves of characters, such as Python reads from names of files that are no text.
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff"))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


@given(st.dictionaries(texts, values, max_size=5))
def test_a_line_is_read_back_as_it_was_written(content: dict[str, Any]) -> None:
    content.pop("crc", None)
    line = line_of(content)
    assert line.count(b"\n") == 1
    assert object_of_line(line, "here", checked=True) == content


@given(st.lists(st.floats(), max_size=50))
def test_numbers_keep_every_bit(numbers: list[float]) -> None:
    found = json.loads(line_of({"numbers": numbers}))["numbers"]
    assert [(x, math.copysign(1, x)) for x in found if not math.isnan(x)] == [
        (x, math.copysign(1, x)) for x in numbers if not math.isnan(x)
    ]
    assert list(map(math.isnan, found)) == list(map(math.isnan, numbers))


@pytest.mark.parametrize("text", ["\udc80", "a\udcff", "\u2028 é \x00"])
def test_a_name_that_is_no_text_is_kept(text: str, tmp_path: Path) -> None:
    """Names of files may hold any bytes, which Python reads as halves of characters."""
    (tmp_path / "lines").write_bytes(line_of({"text": text}) * 2)
    assert [line["text"] for line in read_lines(tmp_path / "lines")] == [text, text]
