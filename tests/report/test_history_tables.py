"""What a session drew on, as the history of a run shows it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from ebbflow import experiment
from ebbflow.report.history_tables import history_table, session_report
from ebbflow.runs.records import EVENTS, read_lines
from tests.configs import digits, with_keys

SETTINGS = {
    "seeds": [1],
    "sessions": 4,
    "rounds": 2,
    "partition.devices": 4,
    "methods": ["warm_start", "learned", "previous"],
    "engine.workers": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "run"
    experiment.run(with_keys(SETTINGS), folder, dataset=digits())
    return folder


def test_a_learned_start_shows_its_mixture_in_place_of_weights(run: Path) -> None:
    (event,) = (
        event
        for event in read_lines(run / EVENTS)
        if event["event"] == "start" and (event["method"], event["session"]) == ("learned", 4)
    )
    lines = list(session_report(run, 4, ["learned"]))
    assert "  asked     4 devices" in lines
    shown = [line for line in lines if line.startswith("  drew on ")]
    assert len(shown) == len(event["mixture"]) >= 3
    weights = [float(line.rpartition(" ")[2]) for line in shown]
    assert weights == pytest.approx(list(event["mixture"].values()), rel=1e-5)
    assert shown[0].startswith("  drew on   the model carried over: weight ")
    assert any(
        re.match(r"  drew on   starting model of session \d: weight ", line) for line in shown
    )
    assert any("tensor    start/theta/weight" in line for line in lines)


def test_other_starts_show_what_they_did_before(run: Path) -> None:
    lines = list(session_report(run, 4, ["warm_start"], [1]))
    assert not any("asked" in line for line in lines)
    drawn = [line for line in lines if line.startswith("  drew on ")]
    assert len(drawn) == 2
    for line, session in zip(drawn, (2, 3), strict=True):
        assert re.fullmatch(rf"  drew on   session {session}: weight [\d.e-]+, distance \S+", line)


def test_the_list_names_the_models_of_a_mixture(run: Path) -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(history_table(run))
    rows = [line for line in out.getvalue().splitlines() if "learned" in line]
    assert len(rows) == 4  # the pilot model and three sessions
    assert all("carried: " in row or "initial: " in row for row in rows[1:])
