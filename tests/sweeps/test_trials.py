"""The trials behind docs/cluster.md: sweeps whose workers and nodes are killed."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest

from benchmarks.sweeps.cells import Interruption, gone_on, interruption, planned, single_runs
from benchmarks.sweeps.kills import one_trial
from ebbflow import experiment
from ebbflow.core.errors import RunStoppedError
from ebbflow.data.local_files import find
from ebbflow.sweeps.claims import Claims, checkpoint_number
from tests.sweeps.wishes import kept
from tests.sweeps.wishes import planned as tiny

NO_MNIST = pytest.mark.skipif(find("mnist") is None, reason="EBBFLOW_DATA names no mnist/")


def silent(sentence: str) -> None:
    """Say nothing."""


def test_a_cell_that_began_anew_after_it_had_been_saved_is_found(tmp_path: Path) -> None:
    """Neither of its attempts began from a checkpoint, as if there had been none."""
    sweep = kept(tmp_path / "sweep", tiny({"seeds": [1, 2]}))
    cell = sweep.plan().cells[0]
    run, claims, own = sweep.run_folder(cell.name), Claims(sweep.path), [os.getpid()]

    def attempted() -> None:
        claim = claims.take(cell.name, run)
        assert claim is not None
        with claim:
            claim.begin()

    assert interruption(sweep, own) is None  # it has begun with no cell
    attempted()
    assert interruption(sweep, own) == Interruption(cell.name, 0, 0, "")
    with pytest.raises(RunStoppedError):
        experiment.run(cell.config, run, stop=lambda: True)
    cut = interruption(sweep, own)
    assert cut is not None
    assert cut.checkpoint == checkpoint_number(run) > 0
    assert cut.place == "seed 1, session 1, round 1"
    attempts = claims.attempts(cell.name)
    assert gone_on(cut, attempts) == []  # nobody has gone on with it yet
    for later in (0, cut.checkpoint):
        row = {"cell": cell.name, "saved": cut.checkpoint, "place": cut.place}
        assert gone_on(cut, [*attempts, {"checkpoint": later}]) == [{**row, "went on from": later}]
    attempted()
    assert interruption(sweep, own) is None  # this attempt may have saved more


@NO_MNIST
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("joining", [0, 1])
def test_killed_workers_change_nothing(joining: int, tmp_path: Path) -> None:
    sweep = planned(tmp_path / "sweep")
    single = single_runs(sweep.plan(), tmp_path / "single", silent)
    row = one_trial(sweep, single, joining, random.Random(joining), silent)
    assert len(row["killed"]) == 6 + 3 * joining
    assert row["killed of those that joined late"] == 3 * joining
    assert row["done"] == row["equal"] == row["cells"] == 24
    assert row["locks still held"] == 0
    assert all(cut["went on from"] >= cut["saved"] for cut in row["interrupted"])


@NO_MNIST
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:unclosed file .*/dev/null:ResourceWarning")  # Ray's own
def test_a_lost_node_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from benchmarks.sweeps.nodes import on_two_nodes  # noqa: PLC0415 - where Ray is

    sweep = planned(tmp_path / "sweep")
    single = single_runs(sweep.plan(), tmp_path / "single", silent)
    row = on_two_nodes(sweep, single, silent)
    gc.collect()  # while the warning is ignored
    assert row["done when a node was killed"] is not None
    assert row["resumed"] >= 1
    assert row["done"] == row["equal"] == row["cells"] == 24
    (cut,) = row["interrupted"]
    assert cut["went on from"] >= cut["saved"] > 0
