"""docs/costs.md says what `python -m benchmarks.pages surveys` computes, and what we aim for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pages import surveys

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"


def test_the_tables_are_as_computed(tmp_path: Path) -> None:
    page = tmp_path / "costs.md"
    page.write_bytes(PAGE.read_bytes())
    surveys.write_tables(page)
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("model", [name for name in surveys.SHOWN if name != "mnist"])
def test_a_survey_takes_at_most_three_tenths_of_a_round_and_a_twentieth_by_multicast(
    model: str,
) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith(f"| {model} | 6 "))
    cells = [cell.strip(" *") for cell in row.strip("|").split("|")]
    assert float(cells[3]) <= 0.3
    assert float(cells[6]) <= 0.05
