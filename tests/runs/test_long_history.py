"""A past that is read in stacks: interrupted runs come to the same bits, checkpoints stay short."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.core import stacks
from ebbflow.runs.checkpoint import checkpoint_paths, read_checkpoint
from ebbflow.runs.records import METRICS, read_events
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys

MANY = {
    "dataset": "digits",
    "methods": ["learned", "warm_start", "average"],
    "seeds": [1],
    "sessions": 8,
    "rounds": 2,
    "pilot.rounds": 2,
    "window": [1],
    "partition.devices": 4,
    "checkpoint.seconds": 1e-9,
}


@pytest.fixture(autouse=True)
def _long_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "LONG", 2)


@pytest.mark.parametrize("history", [{}, {"history.keep": "last", "history.limit": 4}])
def test_a_run_that_was_interrupted_comes_to_the_same_bits(
    history: dict[str, object], tmp_path: Path
) -> None:
    config = with_keys(MANY, history)
    experiment.run(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        experiment.run(config, tmp_path / "cut", callbacks=[StopAfter(13)])
    experiment.resume(tmp_path / "cut")
    whole, cut = ((tmp_path / name / METRICS).read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_a_checkpoint_says_what_a_session_drew_on_only_while_it_lasts(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        experiment.run(with_keys(MANY), tmp_path / "run", callbacks=[StopAfter(13)])
    within, over = map(read_checkpoint, checkpoint_paths(tmp_path / "run"))
    assert (within.session, within.round, over.session, over.round) == (7, 1, 6, 0)
    names = [facts["method"] for facts in within.tracks]
    warm = names.index("warm_start")
    starts = [event for event in read_events(tmp_path / "run") if event["event"] == "start"]
    last = [e for e in starts if (e["method"], e["session"]) == ("warm_start", 7)][-1]
    assert within.tracks[warm]["weights"] == last["weights"]
    assert within.tracks[warm]["distances"] == last["distances"]
    assert all(not facts["weights"] and not facts["distances"] for facts in over.tracks)
    assert [facts["entries"] for facts in over.tracks] == [[2, 3, 4, 5, 6]] * 3
