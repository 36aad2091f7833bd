"""Whole runs on texts: the engine that is chosen, boundaries, checkpoints, other engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ebbflow import experiment
from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import Config
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import EbbflowError, EbbflowWarning, TrainingError
from ebbflow.core.registry import RegisteredAlgorithm
from ebbflow.core.types import Dataset, Examples
from ebbflow.engines import SampleSpace, Vectorised, WholeVectors
from ebbflow.runs import records
from ebbflow.simulation.building import build_world
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys

WORDS = 40


def split(count: int, seed: int) -> Examples:
    """Return texts whose class shows in their words."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (count,), generator=draw)
    x = torch.randint(1, 10, (count, 8), generator=draw) + 8 * y.unsqueeze(-1)
    x[torch.rand(x.shape, generator=draw) < 0.25] = 0
    return Examples(x, y)


DATA = Dataset("agnews", split(240, 1), split(60, 2), 4)


def configured(**settings: Any) -> Config:
    small = {
        "dataset": "agnews",
        "methods": ["warm_start", "previous"],
        "sessions": 4,
        "rounds": 3,
        "partition.devices": 4,
        "local.batch": 8,
        "lr.initial": 0.5,
        "participation.share": 0.7,
        "parameters.embedding.vocabulary": WORDS,
        "parameters.embedding.width": 5,
        "checkpoint.seconds": 1e-9,
    }
    return with_keys(small, settings)


def losses(found: records.RunRecords) -> list[float]:
    return [each.loss for each in found.rounds]


def run(**settings: Any) -> list[float]:
    return losses(experiment.run(configured(**settings), dataset=DATA))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, SampleSpace),
        ({"engine.kind": "sequential"}, WholeVectors),
        ({"model.kind": "mlp", "dataset": "digits"}, Vectorised),
    ],
)
def test_texts_are_trained_in_the_sample_space(settings: dict[str, Any], kind: type) -> None:
    config = configured(**settings)
    data = DATA
    if settings.get("model.kind") == "mlp":
        data = Dataset("digits", Examples(torch.rand(240, 4), DATA.train.y), DATA.test, 4)
        data = Dataset("digits", data.train, Examples(torch.rand(60, 4), DATA.test.y), 4)
    engine = experiment.engine_of(build_world(config, data, 1))
    engine.close()
    assert type(engine) is kind


@pytest.mark.parametrize(
    ("algorithm", "boundary"),
    [("scaffold", "keep"), ("feddyn", "keep"), ("moon", "keep"), ("scaffold", "reset")],
)
def test_a_run_is_that_of_the_reference_engine(algorithm: str, boundary: str) -> None:
    settings = {"algorithm": [algorithm], "boundary.state": boundary}
    ours, theirs = run(**settings), run(**settings, **{"engine.kind": "sequential"})
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert len(set(ours)) > 10


def test_a_run_on_touched_rows_is_that_of_the_reference_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clipped gradients are not linear; with weight decay, rows move that nobody touches."""

    def clipped() -> Algorithm:
        return Algorithm(
            "clipped",
            direction=lambda g, theta, *_: g.clamp(-0.001, 0.001) + 0.01 * theta,
        )

    monkeypatch.setitem(ALGORITHMS._records, "clipped", RegisteredAlgorithm("clipped", clipped))
    theirs = run(algorithm=["clipped"], **{"engine.kind": "sequential"})
    monkeypatch.setattr(Vectorised, "_mapped", None)
    ours = run(algorithm=["clipped"])
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert len(set(ours)) > 10


@pytest.mark.parametrize(
    ("algorithm", "boundary"), [("scaffold", "keep"), ("feddyn", "reset"), ("moon", "keep")]
)
def test_a_stopped_run_goes_on_to_the_bit(algorithm: str, boundary: str, tmp_path: Path) -> None:
    config = configured(**{"algorithm": [algorithm], "boundary.state": boundary})
    whole = experiment.run(config, tmp_path / "whole", dataset=DATA)
    with pytest.raises(Stopped):
        experiment.run(config, tmp_path / "cut", dataset=DATA, callbacks=[StopAfter(8)])
    found = experiment.resume(tmp_path / "cut", dataset=DATA)
    assert losses(found) == losses(whole)


def switched(folder: Path, kinds: Sequence[str]) -> None:
    path = folder / records.CONFIG
    before, after = (f'kind = "{kind}"' for kind in kinds)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_the_reference_engine_goes_on_with_states_that_can_be_laid_out(tmp_path: Path) -> None:
    config = configured(**{"algorithm": ["scaffold"], "boundary.state": "keep"})
    whole = experiment.run(config, tmp_path / "whole", dataset=DATA)
    with pytest.raises(Stopped):
        experiment.run(config, tmp_path / "cut", dataset=DATA, callbacks=[StopAfter(8)])
    switched(tmp_path / "cut", ["vectorised", "sequential"])
    with pytest.warns(EbbflowWarning, match="engine was changed"):
        found = experiment.resume(tmp_path / "cut", dataset=DATA)
    assert losses(found) == pytest.approx(losses(whole), rel=1e-4)


def test_the_reference_engine_refuses_features_in_a_sentence(tmp_path: Path) -> None:
    config = configured(**{"algorithm": ["moon"]})
    with pytest.raises(Stopped):
        experiment.run(config, tmp_path / "cut", dataset=DATA, callbacks=[StopAfter(8)])
    switched(tmp_path / "cut", ["vectorised", "sequential"])
    with (
        pytest.warns(EbbflowWarning, match="engine was changed"),
        pytest.raises(EbbflowError, match="features of their texts instead of a whole model"),
    ):
        experiment.resume(tmp_path / "cut", dataset=DATA)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "moon"])
def test_a_run_that_diverges_names_the_device(algorithm: str) -> None:
    with pytest.raises(TrainingError, match=r"session 1, round \d, device \d+, step \d"):
        run(**{"algorithm": [algorithm], "lr.initial": 1e30, "local.steps": 5})
