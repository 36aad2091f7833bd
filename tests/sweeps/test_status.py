"""How far a sweep is, and how long it will take."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import SUMMARY
from ebbflow.sweeps import starting
from ebbflow.sweeps.claims import Claims
from ebbflow.sweeps.display import SweepDisplay, shown_first, status_table, summary_line
from ebbflow.sweeps.estimate_tables import estimate_record, sweep_estimate_table
from ebbflow.sweeps.estimates import FILE, CellEstimate, alike
from ebbflow.sweeps.failures import Failures
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.outcome import records_frame, sweep_views
from ebbflow.sweeps.plan import SweepCell
from ebbflow.sweeps.starting import refuse_unfinished
from ebbflow.sweeps.status import CellStatus, StatusReader, SweepStatus
from tests.sweeps.wishes import kept, planned

TEN = CellEstimate(10.0, 10**6, 10**5, 1)


def cell(name: str, state: str, **facts: object) -> CellStatus:
    made = {"rounds": 100, "done": 0, "starts": 1, "estimate": TEN, **facts}
    return CellStatus(name, "0" * 16, state, **made)  # type: ignore[arg-type]


def status(*cells: CellStatus) -> SweepStatus:
    return SweepStatus(Path("runs/mine"), "mine", list(cells))


def test_time_left_is_what_is_left_of_the_cells_over_the_workers() -> None:
    waiting = [cell(f"w{n}", "waiting") for n in range(6)]
    half = cell("r", "running", done=50)
    assert status(*waiting, half).seconds_left() == pytest.approx(65)
    assert status(*waiting, half).seconds_left(2) == pytest.approx(32.5)
    assert status(*waiting, half).seconds_left(100) == pytest.approx(10)  # the longest of them
    assert status(*waiting).seconds_left() is None  # nobody is at work
    assert status(cell("d", "done"), cell("f", "failed")).seconds_left() == 0


def test_time_left_learns_from_what_is_done() -> None:
    slow = cell("d", "done", seconds=30.0)
    again = cell("e", "done", seconds=900.0, starts=5)  # was killed; tells nothing
    left = status(slow, again, cell("r", "running"), cell("w", "waiting")).seconds_left(1)
    assert left == pytest.approx(60)
    unknown = cell("x", "waiting", estimate=None)
    assert status(cell("r", "running"), unknown).seconds_left(1) == pytest.approx(20)


@given(
    st.lists(
        st.tuples(st.sampled_from(["done", "running", "failed", "waiting"]), st.integers(0, 100)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 8),
)
def test_time_left_never_grows_with_progress_or_workers(
    cells: list[tuple[str, int]], workers: int
) -> None:
    made = [cell(f"c{n}", state, done=done) for n, (state, done) in enumerate(cells)]
    further = [each._replace(done=min(100, (each.done or 0) + 10)) for each in made]
    now, then = status(*made).seconds_left(workers), status(*further).seconds_left(workers)
    more = status(*made).seconds_left(workers + 1)
    assert now is not None and then is not None and more is not None
    assert 0 <= then <= now and more <= now


def test_a_folder_tells_what_is_done_running_failed_and_waiting(tmp_path: Path) -> None:
    sweep = kept(tmp_path / "sweep", planned({"seeds": "1-4"}))
    run = sweep.run_folder("s1")
    run.mkdir(parents=True)
    (run / SUMMARY).touch()
    Failures(sweep.path).write("s2", EbbflowError("it cannot be [red]: mend it"))
    claim = Claims(sweep.path).take("s3", sweep.run_folder("s3"))
    assert claim is not None
    with claim:
        claim.begin()
        found = StatusReader(sweep).read()
    states = {each.name: each.state for each in found.cells}
    assert states == {"s1": "done", "s2": "failed", "s3": "running", "s4": "waiting"}
    assert found.counts == {"done": 1, "running": 1, "failed": 1, "waiting": 1}
    assert not found.over
    assert found.cells[1].why == "it cannot be [red]: mend it"
    assert found.cells[2].where.endswith(f":{Claims(sweep.path).attempts('s3')[0]['pid']}")
    text = io.StringIO()
    Console(file=text, width=120).print(status_table(found.cells))
    assert "it cannot be [red]: mend it" in text.getvalue()
    assert summary_line(found, 1).startswith("1 of 4 cells done, 1 running, 1 failed, 1 waiting")
    with pytest.raises(EbbflowError, match=r"1 of 4 cells of .* failed, the first s2: it cannot"):
        refuse_unfinished(found)


@pytest.mark.parametrize("text", ["rubbish", '{"version": 2, "cells": {}, "digest": "x"}'])
def test_damaged_estimates_can_be_done_without(text: str, tmp_path: Path) -> None:
    sweep = kept(tmp_path / "sweep", planned({"seeds": "1-2"}))
    (sweep.path / FILE).write_text(text)
    with pytest.raises(EbbflowError, match=r"estimates.json .*: remove the file, and it is"):
        StatusReader(sweep).read()
    (sweep.path / FILE).unlink()
    assert StatusReader(sweep).read().counts["waiting"] == 2


def test_records_tell_what_varies_whichever_cells_have_rounds(tmp_path: Path) -> None:
    plan = planned({"partition.alpha": [0.3, 0.7], "seeds": [1, 2]})
    sweep = kept(tmp_path / "sweep", plan)
    for place, one in enumerate(plan.cells[:2], start=1):
        experiment.run(one.config, sweep.run_folder(one.name))
        frame = records_frame(sweep_views(sweep, plan))
        assert frame.names[:3] == ("run", "partition.alpha", "algorithm")
        told = {(row["run"], row["partition.alpha"]) for row in frame.rows}
        assert told == {(each.name, 0.3) for each in plan.cells[:place]}


def test_lines_tell_of_what_is_new() -> None:
    text = io.StringIO()
    with SweepDisplay(Console(file=text, width=80)) as display:
        display.skip(status(cell("a", "done")))
        display.update(status(cell("a", "done"), cell("b", "running")))
        display.update(status(cell("a", "done"), cell("b", "done", seconds=3.0)))
        display.update(status(cell("b", "done"), cell("c", "failed", why="why not")))
        for _ in range(2):
            display.update(status(cell("d", "waiting", why="here: d is too large")))
    said = "b: done, 3 s\nc: failed: why not\nleft by here: d is too large\n"
    assert text.getvalue() == said


def test_a_terminal_shows_first_what_is_going_on() -> None:
    cells = [cell(f"d{n}", "done") for n in range(50)] + [cell("r", "running")]
    assert [each.name for each in shown_first(cells, 3)] == ["d0", "d1", "r"]


def test_what_is_done_or_has_failed_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def measured(cells: list[SweepCell], *others: object) -> dict[str, CellEstimate]:
        asked.append([each.name for each in cells])
        return {each.name: TEN for each in cells}

    monkeypatch.setattr(starting, "measured", measured)
    plan = planned({"seeds": "1-3"})
    sweep = SweepFolder(tmp_path / "sweep")
    elsewhere = TEN._replace(cores=99)  # as with another number of workers
    sweep.write(plan, {each.name: elsewhere for each in plan.cells})
    experiment.run(plan.cells[0].config, sweep.run_folder("s1"))
    Failures(sweep.path).write("s2", EbbflowError("it cannot be: mend it"))
    ready = starting.prepared(plan, sweep, 1)
    assert ready.estimates == {"s1": elsewhere, "s2": elsewhere, "s3": TEN}
    starting.prepared(plan, sweep, 1, retry=True)
    assert asked == [["s3"], ["s2", "s3"]]
    (sweep.path / FILE).unlink()
    ready = starting.prepared(plan, sweep, 1)
    assert ready.estimates == {"s3": TEN} and ready.seconds == TEN.seconds
    record = estimate_record(ready)
    assert [each["seconds"] for each in record["cells"]] == [None, None, TEN.seconds]
    assert sweep_estimate_table(ready)[0].row_count == 3


def test_cells_that_take_a_whole_cluster_are_computed_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one would wait for cores that no cell gives back, and fail in the end."""
    monkeypatch.setattr(starting, "measured", lambda cells, *_: {each.name: TEN for each in cells})
    sweep = SweepFolder(tmp_path / "sweep")
    plan = planned({"seeds": [1, 2]}, engine__kind="ray")
    refused = pytest.raises(EbbflowError, match=r'^cell s1: engine.kind = "ray" takes all cores')
    with refused:
        starting.prepared(plan, sweep, 2)
    with refused:
        starting.prepared(plan, sweep, 1, on_ray=True)
    ready = starting.prepared(plan, sweep, 1)
    assert ready.estimates.keys() == {"s1", "s2"}
    starting.write(ready)
    for name in ready.estimates:
        Failures(sweep.path).write(name, EbbflowError("it is over"))
    assert starting.prepared(plan, sweep, 2, on_ray=True).workers == 2


def test_cells_that_differ_in_their_seeds_are_measured_once() -> None:
    plan = planned({"partition.alpha": [0.3, 0.7], "seeds": [1, 2, [3, 4]]})
    groups = [[each.name for each in group] for group in alike(plan.cells)]
    assert groups == [
        ["alpha0.3-s1", "alpha0.3-s2"],
        ["alpha0.3-s3+4"],
        ["alpha0.7-s1", "alpha0.7-s2"],
        ["alpha0.7-s3+4"],
    ]
    assert [each.rounds for each in plan.cells[:3]] == [12, 12, 24]
