"""Forks are computed once, again when their definition changes, and failures stop nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.core.processor import instructions
from learned_start import keeping
from learned_start.forking import ForkCell, ForkRow, fork
from learned_start.keeping import is_done, read_rows, run_forks
from learned_start.rules import rule
from tests.learned_start.made import keep, made_rows, tiny

ROWS = made_rows({"previous": (50.0, 60.0), "learned": (70.0, 200 / 3)})


class Here:
    """In place of a pool of processes: computes at once, in this one."""

    def __init__(self, jobs: int, context: object) -> None:
        self.jobs = jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, compute: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(compute(*arguments))
        except EbbflowError as error:
            done.set_exception(error)
        return done


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[ForkCell]:
    """Return the cells that are computed: here, and at no cost; a cell without rounds fails."""
    cells: list[ForkCell] = []

    def pretend(cell: ForkCell) -> list[ForkRow]:
        cells.append(cell)
        if not cell.rounds:
            raise EbbflowError("there is nothing to train")
        return ROWS

    monkeypatch.setattr(keeping, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(keeping, "fork", pretend)
    return cells


def renamed(cell: ForkCell, name: str) -> ForkCell:
    return replace(cell, setting=replace(cell.setting, name=name))


def test_a_cell_is_computed_in_another_process_and_a_failure_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    good = tiny([rule("previous", "previous"), rule("learned")])
    bad = renamed(tiny(settings={"dataset": "nowhere.npz"}), "bad-s7")
    said: list[str] = []
    (failure,) = run_forks([bad, good], tmp_path, 1, said.append)
    assert failure.startswith("bad-s7: ") and "nowhere.npz does not exist" in failure
    assert said[0] == "0 of 2 cells are done already"
    assert any(line.startswith("bad-s7 failed: ") for line in said)
    assert [path.name for path in tmp_path.iterdir()] == ["digits-s7.json"]
    content = json.loads((tmp_path / "digits-s7.json").read_text(encoding="utf-8"))
    assert content["cell"] == "digits-s7" and content["hash"] == good.digest
    assert content["capability"] == instructions()["torch"]
    assert content["config"]["rounds"] == 3
    # What is read again is what was computed, to three digits after the point.
    for kept, computed in zip(read_rows(good, tmp_path), fork(good), strict=True):
        assert kept[:3] == computed[:3]
        assert kept.accuracy == pytest.approx(computed.accuracy, abs=0.0005)
        assert kept.mixture == pytest.approx(computed.mixture, abs=0.00005)


def test_what_is_done_is_not_computed_again(tmp_path: Path, forked: list[ForkCell]) -> None:
    said: list[str] = []
    for _ in range(2):
        assert run_forks([tiny()], tmp_path / "new", 1, said.append) == []
    assert len(forked) == 1
    assert said == [
        "0 of 1 cells are done already",
        "digits-s7, 0 s",
        "1 of 1 cells are done already",
    ]
    assert read_rows(tiny(), tmp_path / "new") == [
        *ROWS[:1],
        ROWS[1]._replace(accuracy=(70.0, 66.667)),
    ]


def test_a_cell_that_is_defined_otherwise_is_computed_again(
    tmp_path: Path, forked: list[ForkCell]
) -> None:
    run_forks([tiny()], tmp_path, 1, print)
    other = tiny(rounds=3)
    assert is_done(tiny(), tmp_path) and not is_done(other, tmp_path)
    run_forks([other], tmp_path, 1, print)
    assert [cell.digest for cell in forked] == [tiny().digest, other.digest]
    assert is_done(other, tmp_path) and not is_done(tiny(), tmp_path)


def test_a_failure_is_reported_and_tried_again(tmp_path: Path, forked: list[ForkCell]) -> None:
    bad, good = renamed(tiny(rounds=0), "bad-s7"), tiny()
    sentence = "bad-s7: there is nothing to train"
    assert run_forks([bad, good], tmp_path, 1, print) == [sentence]
    assert run_forks([bad, good], tmp_path, 1, print) == [sentence]
    assert [cell.name for cell in forked] == ["bad-s7", "digits-s7", "bad-s7"]


def test_beside_others_a_cell_has_one_worker_and_its_own_digest(
    tmp_path: Path, forked: list[ForkCell]
) -> None:
    cell = replace(tiny(repeats=2, driver="previous"), order=(1, 3, 5, 2), since=4)
    run_forks([cell], tmp_path, 2, print)
    (computed,) = forked
    assert computed.setting.config.engine.workers == 1
    assert computed.digest == cell.digest
    assert is_done(cell, tmp_path)


def test_what_is_not_there_is_said_with_the_way_to_make_it(tmp_path: Path) -> None:
    sentence = "there is no result of digits-s7 in .*: make it by `python -m learned_start fork`"
    with pytest.raises(EbbflowError, match=sentence):
        read_rows(tiny(), tmp_path)
    keep(tiny(rounds=3), ROWS, tmp_path)  # of another definition
    with pytest.raises(EbbflowError, match=sentence):
        read_rows(tiny(), tmp_path)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    keep(tiny(), ROWS, tmp_path).write_text("{", encoding="utf-8")
    with pytest.raises(EbbflowError, match=r"digits-s7\.json is no JSON object"):
        is_done(tiny(), tmp_path)
