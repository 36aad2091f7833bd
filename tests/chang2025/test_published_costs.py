"""The paper's rounds, seconds and joules, and what our wireless model makes of them."""

from __future__ import annotations

import pytest

from chang2025.published_costs import PAPER_ROUND, published, published_rounds
from chang2025.reference import table
from ebbflow.analysis.cost import MODELS, round_task
from ebbflow.analysis.metrics import speed_up
from ebbflow.analysis.run_costs import estimate
from ebbflow.config.presets import preset
from ebbflow.config.schema import Wireless


@pytest.mark.parametrize("name", PAPER_ROUND)
def test_the_fitted_reading_is_within_two_per_cent_of_the_paper(name: str) -> None:
    wireless = Wireless(**preset("fitted")["wireless"], fading="ergodic")
    found = estimate(wireless, round_task(wireless, MODELS[name]), 100).cost
    seconds, joules = PAPER_ROUND[name]
    assert found.latency == pytest.approx(seconds, rel=0.02)
    assert found.energy == pytest.approx(joules, rel=0.02)


def test_the_papers_columns_are_its_rounds_times_one_round() -> None:
    rows = published()
    assert len(rows) == 16
    for row in rows:
        seconds, joules = PAPER_ROUND[row.dataset]
        assert row.rounds * seconds == pytest.approx(row.latency, abs=0.0501)
        assert row.rounds * joules == pytest.approx(row.energy, abs=5.01)


def test_the_papers_rounds() -> None:
    label, found = published_rounds("svhn")
    assert label == "moon, overlap 0, alpha 0.7"
    assert found == {"warm_start": 1, "previous": 5, "continuous": 52, "average": 14}
    assert published_rounds("mnist") == ("", {})


def test_the_papers_speed_ups_are_ratios_of_its_rounds() -> None:
    rows = table("time_to_accuracy.csv")
    proposed = [row for row in rows if row["method"] == "proposed"]
    assert {row["rounds"] for row in proposed} == {"1"}  # the auxiliary round is not counted
    for row in rows:
        if row["method"] != "proposed":
            assert float(row["speedup"]) == speed_up(float(row["rounds"]), 1.0)
            # With the auxiliary round of Proposed every one of them is half as large.
            assert speed_up(float(row["rounds"]), 2.0) == float(row["speedup"]) / 2
