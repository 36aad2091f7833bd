"""Leads over the best simple start, by hand."""

from __future__ import annotations

import math

import pytest

from learned_start.regret import Lead, leads, summarise
from tests.learned_start.made import made_rows, tiny

LEVELS = {
    "previous": (50.0, 60.0),
    "average": (40.0, 60.0),
    "warm_start": (60.0, 70.0),
    "nearest": (58.0, 66.0),
    "initial": (10.0, 30.0),
    "learned": (64.0, 69.0),
}


def test_a_lead_is_over_the_best_simple_start_of_the_transition() -> None:
    rows = made_rows(LEVELS) + made_rows({**LEVELS, "initial": (90.0, 90.0)}, session=5)
    found = {(lead.session, lead.rule): lead for lead in leads(tiny(), rows)}
    assert {rule: found[4, rule].points for rule in LEVELS} == {
        "previous": -10.0,
        "average": -15.0,
        "warm_start": 0.0,
        "nearest": -3.0,
        "initial": -45.0,
        "learned": 1.5,
    }
    assert found[5, "initial"].points == 0
    assert found[5, "learned"].points == 66.5 - 90
    assert {lead.cell for lead in found.values()} == {"digits-s7"}
    assert {lead.noise for lead in found.values()} == {None}


def test_the_learned_start_itself_and_its_variants_are_not_simple() -> None:
    rows = made_rows({**LEVELS, "learned": (99.0, 99.0), "4 models": (80.0, 80.0)})
    found = {lead.rule: lead.points for lead in leads(tiny(), rows)}
    assert found["warm_start"] == 0
    assert (found["learned"], found["4 models"]) == (34.0, 15.0)


def test_noise_is_the_deviation_of_leads_over_repeats() -> None:
    """In each repeat, the best simple start of that repeat counts."""
    other = {**LEVELS, "previous": (70.0, 70.0), "learned": (70.0, 71.0)}
    rows = made_rows(LEVELS) + made_rows(other, repeat=1)
    found = {lead.rule: lead for lead in leads(tiny(repeats=2), rows)}
    # 66.5 - 65 and 70.5 - 70.
    assert found["learned"].points == 1.0
    assert found["learned"].noise == pytest.approx(math.sqrt(0.5))
    # 0 and 65 - 70.
    assert found["warm_start"].points == -2.5
    assert found["warm_start"].noise == pytest.approx(5 / math.sqrt(2))


def test_a_summary_counts_what_its_columns_say() -> None:
    points = {"previous": [-4.0, -1.0, 0.0, -0.5], "learned": [0.25, 1.0, -0.75, 0.0]}
    found = summarise(
        Lead("a", session, rule, value, None)
        for rule, values in points.items()
        for session, value in enumerate(values, start=4)
    )
    # At the limits: half a point behind is not more than that, and one is not more than one.
    assert [tuple(row) for row in found] == [
        ("previous", 4, -1.375, -4.0, 0.5, 1, 0.0),
        ("learned", 4, 0.125, -0.75, 0.75, 0, 0.5),
    ]


def test_nothing_has_no_summary() -> None:
    assert summarise([]) == []
    assert leads(tiny(), []) == []
