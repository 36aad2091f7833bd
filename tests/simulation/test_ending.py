"""A method that diverges ends alone: neighbours and other seeds go on as if it were not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ebbflow import experiment
from ebbflow.core.errors import TrainingError
from ebbflow.runs import records
from ebbflow.runs.records import RunRecords
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.test_cli import ebbflow

SMALL: dict[str, Any] = {
    "algorithm": ["fedavg", "fedprox"],
    "methods": ["warm_start", "previous"],
    "seeds": [1, 2],
    "sessions": 5,
    "rounds": 3,
    "partition.devices": 6,
    "data.limit_train": 300,
    "checkpoint.seconds": 1e-9,
}
DIVERGING = {"lr.algorithms.fedprox.initial": 1e30}


def ended(outcome: RunRecords) -> list[tuple[str, str, int, int, int]]:
    names = ("algorithm", "method", "seed", "session", "round")
    return [tuple(e[n] for n in names) for e in outcome.events if e["event"] == "ended"]


@pytest.mark.parametrize("kind", ["vectorised", "sequential"])
@pytest.mark.parametrize("guard", ["refuse", "stop"])
def test_the_others_go_on_bit_by_bit(kind: str, guard: str) -> None:
    keys = {"engine.kind": kind, "guard.not_finite": guard}
    both = experiment.run(with_keys(SMALL, {**keys, **DIVERGING}))
    alone = experiment.run(with_keys(SMALL, {**keys, "algorithm": ["fedavg"]}))
    assert ended(both) == [
        ("fedprox", method, seed, 1, 1) for seed in (1, 2) for method in ("warm_start", "previous")
    ]
    assert both.rounds == alone.rounds
    assert both.rows == alone.rows


def test_it_may_end_in_the_middle_and_its_unfinished_session_counts_nowhere() -> None:
    # Under seed 1, too many devices are lost in some later round; nobody else has a quorum to meet.
    config = with_keys(SMALL, {"seeds": [1, 2, 3], "faults.dropout.rate": 0.2})
    outcome = experiment.run(config)
    last = {(a, m, seed): session for a, m, seed, session, _ in ended(outcome)}
    assert last and len(last) < 3 * 4
    for row in outcome.rows:
        key = row["algorithm"], row["method"], row["seed"]
        assert key not in last or row["session"] < last[key]
    for r in outcome.rounds:
        assert r.session <= last.get((r.algorithm, r.method, r.seed), 5)


def test_a_run_with_an_ended_method_is_resumed_and_its_summary_says_so(tmp_path: Path) -> None:
    config = with_keys(SMALL, DIVERGING)
    whole = experiment.run(config, tmp_path / "whole")
    for after in (1, 4, 14, 16, 22):
        folder = tmp_path / f"run-{after}"
        with pytest.raises(Stopped):
            experiment.run(config, folder, callbacks=[StopAfter(after)])
        again = experiment.resume(folder)
        assert again.rounds == whole.rounds
        assert ended(again) == ended(whole)
        written = records.read_sealed(folder / records.SUMMARY)["ended"]
        assert [e["method"] for e in written] == ["warm_start", "previous"] * 2


def test_a_run_in_which_every_method_ends_is_an_error() -> None:
    keys = {"lr.algorithms.fedavg.initial": 1e38, **DIVERGING}
    with pytest.raises(TrainingError, match=r"^session 1, round 1, device"):
        experiment.run(with_keys(SMALL, keys))


def test_the_command_says_who_ended_and_every_other_command_reads_the_folder(
    tmp_path: Path,
) -> None:
    keys = [f"--set={key}={value}" for key, value in DIVERGING.items()]
    small = ["--set=rounds=2", "--set=partition.devices=6", "--set=data.limit_train=300"]
    options = ["--algorithm", "fedavg,fedprox", "--seeds", "1", "--sessions", "5"]
    folder = tmp_path / "run"
    done = ebbflow("compare", "--dataset", "digits", *options, *small, *keys, "--out", str(folder))
    assert done.code == 0, done.err
    assert "note: fedprox, previous, seed 1 ended in session 1" in " ".join(done.out.split())
    for command in (["metrics"], ["cost"], ["history", "ls"], ["bound"], ["verify"], ["resume"]):
        told = ebbflow(*command, str(folder))
        assert told.code == 0, (command, told.err)
