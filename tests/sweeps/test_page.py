"""What the page on sweeps says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.federation.page import filled
from benchmarks.sweeps.page import PAGE, RESULTS, gone_on, parts, what_was_lost
from ebbflow.sweeps.planning import plan_of, wish_of_file


def test_the_sweep_on_the_page_can_be_planned(tmp_path: Path) -> None:
    (text,) = [
        text
        for text in re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
        if "[grid]" in text
    ]
    (tmp_path / "alphas.toml").write_text(text)
    plan = plan_of(wish_of_file(tmp_path / "alphas.toml"))
    assert (plan.name, len(plan.cells)) == ("alphas", 20)
    assert plan.cells[0].name == "fedavg-alpha0.3-s1"


@pytest.mark.skipif(not any(RESULTS.glob("*.json")), reason="nothing was tried yet")
def test_the_tables_are_what_was_kept() -> None:
    page = PAGE.read_text("utf-8")
    assert filled(page, parts()) == page


def test_what_no_trial_has_noted_is_not_said() -> None:
    assert gone_on({"resumed": 2}) == "not noted"
    assert what_was_lost([{"resumed": 2}]) == ""


def test_what_was_saved_at_a_kill_is_compared_with_where_the_cell_went_on() -> None:
    cuts = [{"saved": n, "went on from": m} for n, m in ((0, 0), (4, 4), (4, 5), (4, 3), (4, 0))]
    assert gone_on({"interrupted": cuts}) == "2 of 4"
    assert "happened once" in what_was_lost([{"interrupted": cuts}, {"resumed": 2}])
    assert gone_on({"interrupted": []}) == "0 of 0"


def test_what_was_kept_is_what_is_promised() -> None:
    for name in ("kills", "ray"):
        for row in json.loads((RESULTS / f"{name}.json").read_text()):
            assert row["done"] == row["equal"] == row["cells"] == 24
            assert row["resumed"] >= 1
            assert all(c["went on from"] >= c["saved"] for c in row.get("interrupted", []))
    tried = RESULTS / "estimates.json"  # on a machine at rest, or not at all
    for row in json.loads(tried.read_text()) if tried.exists() else []:
        assert 0.5 < row["seconds told"] / row["seconds"] < 2, row["cell"]
        assert 0.5 < row["memory told"] / row["memory"] < 2, row["cell"]
