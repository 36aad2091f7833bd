"""Modules that a program hands over, with one output or several inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import ebbflow
from ebbflow import Algorithm, Situation, Start, StartingPoint, Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.packing import packed, unpacked
from ebbflow.core.types import Dataset, Examples
from ebbflow.models import MODELS
from ebbflow.models.own import OWN

SMALL: dict[str, Any] = {"seeds": [1], "rounds": 2, "sessions": 4, "devices": 4, "window": 2}
DRAW = np.random.default_rng(2)
X = torch.from_numpy(DRAW.normal(size=(160, 6)).astype(np.float32))


def of_classes() -> Dataset:
    y = X[:, :3].argmax(1)
    return Dataset("mine", Examples(X[:120], y[:120]), Examples(X[120:], y[120:]), 3)


def of_two() -> Dataset:
    y = (X[:, 0] > 0).long()
    return Dataset("mine", Examples(X[:120], y[:120]), Examples(X[120:], y[120:]), 2)


def of_numbers() -> Dataset:
    y = X[:, :1] * 2 + 1
    return Dataset("mine", Examples(X[:120], y[:120]), Examples(X[120:], y[120:]), 1)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_function_is_called_for_every_seed_and_a_module_is_taken_as_it_is() -> None:
    drawn = ebbflow.compare(of_classes(), model=small, **{**SMALL, "seeds": [1, 2]})
    given = ebbflow.compare(of_classes(), model=small(), **{**SMALL, "seeds": [1, 2]})
    starts = [
        [e["loss"] for e in records.events if e["event"] == "start" and e["session"] == 1]
        for records in (drawn, given)
    ]
    assert len(set(starts[0])) == 2
    assert len(set(starts[1])) <= 2  # the devices differ from seed to seed, the weights do not
    assert OWN not in MODELS


def test_a_module_with_one_logit_is_a_binary_classifier() -> None:
    class OneLogit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            logit: Tensor = self.line(x).squeeze(-1)
            return logit

    settings = {"task": "binary", "metrics": ["auc", "accuracy"], "lr.initial": 0.1}
    arguments = {**SMALL, "rounds": 20}
    records = ebbflow.compare(of_two(), model=OneLogit, settings=settings, **arguments)
    assert records.rounds[-1].accuracy > 80


def test_a_module_that_returns_a_number_for_each_sample_is_a_regression() -> None:
    class OneNumber(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, 0]

    settings = {"task": "regression", "lr.initial": 0.05}
    arguments = {**SMALL, "rounds": 20}
    records = ebbflow.compare(of_numbers(), model=OneNumber(6, 1), settings=settings, **arguments)
    assert records.rounds[-1].accuracy < 0.3 < records.rounds[0].accuracy


class TwoInputs(nn.Module):
    """A picture and a word."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.words, self.head = nn.Linear(4, 5), nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, picture: Tensor, word: Tensor) -> Tensor:
        found: Tensor = self.head(self.look(picture.flatten(1)).relu() + self.words(word[:, 0]))
        return found


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "engine", [pytest.param("sequential", marks=pytest.mark.slow), "vectorised"]
)
def test_several_inputs_reach_a_module_by_name_or_in_order(named: bool, engine: str) -> None:
    draw = np.random.default_rng(4)
    word: NDArray[Any] = draw.integers(9, size=160)
    picture: NDArray[Any] = draw.normal(size=(160, 2, 2)).astype(np.float32)
    inputs = {"picture": picture, "word": word} if named else [picture, word]
    x, layout = packed(inputs, "the data")
    y = torch.from_numpy(word % 3)
    rows = torch.from_numpy(x)
    data = Dataset(
        "mine", Examples(rows[:120], y[:120]), Examples(rows[120:], y[120:]), 3, inputs=layout
    )
    settings = {"engine.kind": engine, "lr.initial": 0.1}
    records = ebbflow.compare(data, model=TwoInputs, settings=settings, **{**SMALL, "rounds": 40})
    assert records.rounds[-1].accuracy > 80
    plain = ebbflow.compare(data, settings={"model.kind": "softmax"}, **SMALL)
    assert len(plain.rounds) == len(SMALL["seeds"]) * 4 * 4 * 2


def test_what_is_packed_is_unpacked() -> None:
    arrays: dict[str, NDArray[Any]] = {
        "a": DRAW.normal(size=(7, 3)).astype(np.float32),
        "b": DRAW.integers(2**24, size=(7, 2, 2)),
        "c": DRAW.integers(256, size=7).astype(np.uint8),
    }
    x, layout = packed(arrays, "the data")
    found = unpacked(torch.from_numpy(x), layout)
    assert torch.equal(found["a"], torch.from_numpy(arrays["a"]))
    assert torch.equal(found["b"], torch.from_numpy(arrays["b"]))
    assert torch.allclose(found["c"][:, 0], torch.from_numpy(arrays["c"]) / 255)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({}, "no inputs"),
        ({"a": np.zeros((3, 1)), "b": np.zeros((4, 1))}, "input b has 4 samples"),
        ({"a": np.array(["x"])}, "input a is of type"),
        ({"a": np.array([2**25])}, "beyond 16,777,216"),
    ],
)
def test_inputs_that_cannot_be_packed_are_refused(
    arrays: dict[str, NDArray[Any]],
    sentence: str,
) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        packed(arrays, "the data")


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(EbbflowError, match="model is a int"):
        ebbflow.compare(of_classes(), model=3, **SMALL)  # type: ignore[arg-type]
    with pytest.raises(EbbflowError, match="returned a int"):
        ebbflow.compare(of_classes(), model=lambda: 3, **SMALL)  # type: ignore[arg-type]


def test_a_run_with_a_module_can_be_resumed_with_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = ebbflow.compare(of_classes(), model=small, out=out, **SMALL)
    again = ebbflow.resume(out, dataset=of_classes(), model=small)
    assert again.rounds == done.rounds
    with pytest.raises(EbbflowError, match=OWN):
        ebbflow.resume(out, dataset=of_classes())


def test_algorithms_and_starts_of_ones_own_are_handed_over_as_objects() -> None:
    def halfway(share: float = 0.5) -> Start:
        def choose(situation: Situation) -> StartingPoint:
            models = [situation.carried, situation.initial]
            return StartingPoint(ebbflow.mix(models, [1 - share, share]))

        return Start(choose)

    def slow(rate: float = 0.5) -> Algorithm:
        def step(theta: Tensor, server: dict[str, Tensor], total: Upload) -> Any:
            return theta + rate * total.delta / total.samples, server

        return Algorithm("slow", server_step=step)

    records = ebbflow.compare(
        of_classes(),
        algorithm=[slow, "fedavg", Algorithm("plain")],
        methods=[halfway, "previous"],
        settings={"parameters.slow.rate": 0.9, "parameters.halfway.share": 0.1},
        **SMALL,
    )
    assert {r.algorithm for r in records.rounds} == {"slow", "fedavg", "plain"}
    assert {r.method for r in records.rounds} == {"halfway", "previous"}
    by = {
        name: [r.loss for r in records.rounds if (r.algorithm, r.method) == (name, "previous")]
        for name in ("slow", "fedavg", "plain")
    }
    assert by["plain"] == by["fedavg"] != by["slow"]
    assert "slow" not in ebbflow.ALGORITHMS and "halfway" not in ebbflow.STARTS
