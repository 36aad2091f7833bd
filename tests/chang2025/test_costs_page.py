"""docs/costs.md says what `python -m chang2025 costs` computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chang2025 import costs_page as costs

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"


@pytest.mark.parametrize(
    "name", [pytest.param("readings", marks=pytest.mark.slow), "time to accuracy", "charged"]
)
def test_the_tables_are_as_computed(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert costs.written(page, [name]) == page


def test_the_fitted_reading_is_within_two_per_cent_in_every_row() -> None:
    rows = costs.time_to_accuracy().splitlines()[2:]
    assert len(rows) == 16
    for row in rows:
        cells = row.split(" | ")
        for cell in (cells[4], cells[7]):
            (off,) = re.findall(r"\(([+-]\d+\.\d) %\)", cell)
            assert abs(float(off)) < 2


def test_the_closed_form_is_within_one_per_cent_where_it_is_used() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = page.split("<!-- exactness -->")[1].split("<!-- /exactness -->")[0].strip().splitlines()
    assert len(rows) == 2 + 6
    for row in rows[2:]:
        model, _, latency, energy, *_ = row.strip("| ").split(" | ")
        if model != "mnist":  # which is short, and followed slot by slot
            assert abs(float(latency.split()[0])) < 1
            assert abs(float(energy.split()[0])) < 1
