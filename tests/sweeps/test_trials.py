"""The trials behind docs/cluster.md: sweeps whose workers and nodes are killed."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from benchmarks.sweeps.cells import begun_anew, planned, single_runs
from benchmarks.sweeps.kills import one_trial
from ebbflow.data.local_files import find

NO_MNIST = pytest.mark.skipif(find("mnist") is None, reason="EBBFLOW_DATA names no mnist/")


def silent(sentence: str) -> None:
    """Say nothing."""


def test_what_counts_as_begun_anew() -> None:
    assert begun_anew([{"checkpoint": n} for n in (0, 0, 3, 5)]) == 0
    assert begun_anew([{"checkpoint": n} for n in (0, 3, 0)]) == 1


@NO_MNIST
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("joining", [0, 1])
def test_killed_workers_change_nothing(joining: int, tmp_path: Path) -> None:
    sweep = planned(tmp_path / "sweep")
    single = single_runs(sweep.plan(), tmp_path / "single", silent)
    row = one_trial(sweep, single, joining, random.Random(joining), silent)
    assert len(row["killed"]) == 6
    assert row["done"] == row["equal"] == row["cells"] == 24
    assert row["begun anew though saved"] == row["locks still held"] == 0


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
    assert row["begun anew though saved"] == 0
