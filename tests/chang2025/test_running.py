"""Cells are run once, go on where they were stopped, and leave all that is asked of them later."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chang2025.cells import Cell
from chang2025.results import CurveKey, read_result
from chang2025.running import capability, compute, is_done, run_cells
from ebbflow import experiment
from ebbflow.analysis.run_costs import model_size, usages
from ebbflow.core.errors import EbbflowError
from ebbflow.core.processor import described, instructions
from ebbflow.runs.records import ENVIRONMENT
from ebbflow.runs.summary import curves
from ebbflow.simulation.callbacks import Callback, SessionFinished
from tests.run_folders import resealed

VALUES: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": ["fedavg", "fedprox", "scaffold"],
    "methods": ["warm_start", "continuous", "previous", "average"],
    "seeds": [7],
    "sessions": 5,
    "rounds": 3,
    "partition.devices": 4,
}
CELL = Cell("digits-s7", VALUES)


class Interruption(Callback):
    """A watcher that stops a run when a session is over."""

    def __init__(self, session: int) -> None:
        self.session = session

    def session_finished(self, event: SessionFinished) -> None:
        if event.session.index == self.session:
            raise KeyboardInterrupt


def test_a_result_holds_the_curves_the_weights_and_the_costs_of_its_run(tmp_path: Path) -> None:
    compute(CELL, tmp_path / "results", tmp_path / "runs", keep=True)
    found = read_result(tmp_path / "results", CELL.name)
    records = experiment.resume(tmp_path / "runs" / CELL.name)
    for key, curve in curves(records.rounds).items():
        lane = CurveKey(key.algorithm, key.method, key.session)
        assert found.curves[lane] == pytest.approx(curve, abs=0.0005)
    assert len(found.curves) == 3 * 4 * 5
    for event in records.events:
        if event["event"] == "start" and event["method"] == "warm_start":
            lane = CurveKey(event["algorithm"], event["method"], event["session"])
            assert found.start(lane)["weights"] == pytest.approx(event["weights"], rel=1e-3)
    # What a round costs on the air follows from the result as it does from the run.
    config, size = CELL.config, model_size(CELL.config)
    ours = {u[:4]: u for u in usages(config, size, found.rounds(), found.events())}
    for usage in usages(config, size, records.rounds, records.events):
        own = ours[usage[:4]]
        assert own._replace(accuracies=usage.accuracies) == usage
    facts = found.facts
    assert facts["hash"] == CELL.digest and facts["resumed"] is False
    assert facts["cpu_seconds"] > 0 and facts["memory"] > 2**24 and facts["seconds"] > 0
    assert set(facts["versions"]) >= {"ebbflow", "torch"}
    assert found.capability == facts["capability"] == capability()
    assert facts["machine"]["instructions"] == described(instructions())
    assert facts["sent"]["scaffold"] == [2 * size for size in facts["sent"]["fedavg"]]
    assert found.config.seeds == [7]


def test_a_cell_that_goes_on_with_other_instructions_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / CELL.name
    with pytest.raises(KeyboardInterrupt):
        experiment.run(CELL.config, folder, callbacks=[Interruption(3)])
    resealed(folder / ENVIRONMENT, lambda facts: facts.update(instructions={"torch": "DEFAULT"}))
    compute(CELL, tmp_path / "results", tmp_path / "runs", keep=False)
    assert "started with other instructions" in capsys.readouterr().err


def test_a_stopped_cell_goes_on_and_ends_as_one_that_was_not(tmp_path: Path) -> None:
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    with pytest.raises(KeyboardInterrupt):
        experiment.run(CELL.config, stopped / "runs" / CELL.name, callbacks=[Interruption(3)])
    for place in (stopped, whole):
        compute(CELL, place / "results", place / "runs", keep=False)
        assert not (place / "runs" / CELL.name).exists()
    files = [place / "results" / f"{CELL.name}.csv" for place in (stopped, whole)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert read_result(stopped / "results", CELL.name).facts["resumed"] is True


def test_a_stopped_run_with_other_settings_is_begun_anew(tmp_path: Path) -> None:
    other = CELL.with_settings({"rounds": 2})
    with pytest.raises(KeyboardInterrupt):
        experiment.run(other.config, tmp_path / "runs" / CELL.name, callbacks=[Interruption(2)])
    compute(CELL, tmp_path / "results", tmp_path / "runs", keep=False)
    assert read_result(tmp_path / "results", CELL.name).facts["resumed"] is False


def test_cells_run_in_processes_of_their_own_and_only_once(tmp_path: Path) -> None:
    small = {**VALUES, "algorithm": ["fedavg"], "sessions": 3, "rounds": 1}
    good = Cell("good-s7", small)
    too_few = Cell("few-s7", small, needed_samples=10**6)
    said: list[str] = []
    with pytest.raises(EbbflowError, match=r"1,437 of 1,000,000 training samples here"):
        compute(too_few, tmp_path, tmp_path / "runs", keep=False)
    with pytest.raises(EbbflowError, match="give them by --weights"):
        compute(replace(good, pretrained=True), tmp_path, tmp_path / "runs", keep=False)
    assert run_cells([good], tmp_path, tmp_path / "runs", say=said.append) == []
    assert is_done(good, tmp_path) and not is_done(too_few, tmp_path)
    assert not is_done(Cell("good-s7", {**small, "rounds": 2}), tmp_path)
    before = (tmp_path / "good-s7.json").read_bytes()
    assert run_cells([good], tmp_path, tmp_path / "runs", say=said.append) == []
    assert said[-1] == "1 of 1 cells are done already"
    assert (tmp_path / "good-s7.json").read_bytes() == before


def test_results_of_another_instruction_set_are_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chang2025.running._work", lambda *arguments: None)
    said: list[str] = []
    run_cells([CELL], tmp_path, tmp_path / "runs", say=said.append)
    assert not any(line.startswith("note") for line in said)
    (tmp_path / "other-s7.json").write_text(json.dumps({"capability": "VSX"}))
    run_cells([CELL], tmp_path, tmp_path / "runs", say=said.append)
    (note,) = (line for line in said if line.startswith("note"))
    assert "were computed with VSX instructions" in note and f"uses {capability()}" in note


@pytest.mark.slow
def test_a_cell_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    small = {**VALUES, "algorithm": ["fedavg"], "sessions": 3, "rounds": 1}
    cells = [Cell("few-s7", small, needed_samples=10**6), Cell("good-s7", small)]
    (failure,) = run_cells(cells, tmp_path, tmp_path / "runs", say=lambda line: None)
    assert failure.startswith("few-s7: digits has 1,437 of 1,000,000 training samples")
    assert is_done(cells[1], tmp_path)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="there is no result"):
        read_result(tmp_path, "nothing-s1")
    (tmp_path / "x-s1.json").write_text(json.dumps({"format": 0, "hash": "a"}))
    (tmp_path / "x-s1.csv").write_text("session,lanes,accuracy\n")
    with pytest.raises(EbbflowError, match="not of this version"):
        read_result(tmp_path, "x-s1")
    (tmp_path / "x-s1.json").write_text(json.dumps({"format": 1, "hash": "a"}))
    (tmp_path / "x-s1.csv").write_text("session,lanes,accuracy\n1,fedavg,a b\n")
    with pytest.raises(EbbflowError, match="holds no curves"):
        read_result(tmp_path, "x-s1")
