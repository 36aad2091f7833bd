"""Whatever is to be predicted: every algorithm, start and engine goes through the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import Config
from ebbflow.core.algorithm import Algorithm, cross_entropy
from ebbflow.core.errors import EbbflowError
from ebbflow.core.objectives import for_task
from ebbflow.core.tasks import LOSSES, REGRESSION
from ebbflow.core.types import Dataset, Examples, Model
from ebbflow.experiment import run
from ebbflow.models import MODELS, from_module, register_model
from ebbflow.runs.records import RunRecords
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.starts import STARTS
from tests.configs import with_settings

SMALL = ("dataset=mine", "seeds=[1]", "rounds=2", "sessions=4", "partition.devices=4", "window=2")
TOKENS, LENGTH = 7, 5


class NextToken(nn.Module):
    """A score for every token that may follow, from the token before."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.table(x)
        return scores


def next_token(shape: tuple[int, ...], classes: int) -> Model:
    return from_module(NextToken, "next_token")


@pytest.fixture(autouse=True)
def tokens_model() -> Iterator[None]:
    register_model("next_token", next_token)
    yield
    MODELS.unregister("next_token")


def made(task: str, samples: int = 160) -> Dataset:
    """Return data in which the truth follows from the inputs, up to noise."""
    draw = np.random.default_rng(3)
    x = torch.from_numpy(draw.normal(size=(samples, 6)).astype(np.float32))
    weights = torch.from_numpy(draw.normal(size=(6, 3)).astype(np.float32))
    scores = x @ weights
    owners = torch.arange(samples) % 8
    classes = 3
    if task in ("classes", "binary"):
        y = scores.argmax(1) if task == "classes" else (scores[:, 0] > 0).long()
        classes = 3 if task == "classes" else 2
    elif task == "regression":
        noise = torch.from_numpy(draw.normal(size=(samples, 2)).astype(np.float32))
        y, classes = scores[:, :2] + 0.1 + 0.3 * noise, 2
    elif task == "multilabel":
        y = (scores > 0).float()
    else:
        x = torch.from_numpy(draw.integers(TOKENS, size=(samples, LENGTH)))
        y, classes = (3 * x + 1) % TOKENS, TOKENS
        y[:, -1] = -100
    names = tuple(f"ward {n}" for n in range(8))
    train = Examples(x[:120], y[:120], None, owners[:120])
    test = Examples(x[120:], y[120:], None, owners[120:])
    return Dataset("mine", train, test, classes, names)


TASKS = ("classes", "binary", "regression", "multilabel", "tokens")
USUAL = {"binary": "accuracy", "regression": "rmse", "multilabel": "f1"}


def config_of(task: str, *settings: str) -> Config:
    model = ("model.kind=next_token",) if task == "tokens" else ()
    return with_settings(*SMALL, f"task={task}", *model, *settings)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_and_start_gives_the_same_on_both_engines(
    task: str, algorithm: str
) -> None:
    starts = f"methods={list(STARTS)}"
    found: list[RunRecords] = []
    for engine in ("sequential", "vectorised"):
        settings = (f"algorithm={algorithm}", starts, f"engine.kind={engine}", "engine.workers=1")
        found.append(run(config_of(task, *settings), dataset=made(task)))
    one, other = found
    assert {r.method for r in one.rounds} == set(STARTS)
    for a, b in zip(one.rounds, other.rounds, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-3, abs=1e-5)
        assert np.isfinite(a.accuracy)


@pytest.mark.parametrize("task", TASKS)
def test_training_gets_better_at_every_task(task: str) -> None:
    settings = ("methods=['learned']", "rounds=30", "lr.initial=0.1", "lr.floor=1.0")
    rounds = run(config_of(task, *settings), dataset=made(task)).rounds
    assert rounds[-1].loss < 0.7 * rounds[0].loss
    lower = task == "regression"
    assert (
        (rounds[-1].accuracy < rounds[0].accuracy)
        if lower
        else (rounds[-1].accuracy > rounds[0].accuracy)
    )


def test_a_binary_task_is_one_of_two_classes() -> None:
    two, data = made("binary"), made("binary")
    both = [run(config_of(task), dataset=two).rounds for task in ("classes", "binary")]
    assert both[0] == both[1]
    assert data.classes == 2


def test_measures_are_recorded_and_the_first_one_judges() -> None:
    config = config_of("binary", "metrics=['auc','f1','accuracy']")
    records = run(config, dataset=made("binary"))
    for each in records.rounds:
        assert each.measures is not None
        assert list(each.measures) == ["auc", "f1", "accuracy"]
        assert each.accuracy == each.measures["auc"]
    plain = run(config_of("binary"), dataset=made("binary"))
    accuracies = [r.measures["accuracy"] for r in records.rounds if r.measures]
    assert accuracies == [r.accuracy for r in plain.rounds]
    assert all(r.measures is None for r in plain.rounds)


def test_numbers_are_reported_in_the_users_units() -> None:
    data = made("regression")
    scaled = replace(data, scale=((100.0, 100.0), (50.0, 50.0)))
    one, other = (run(config_of("regression"), dataset=each) for each in (data, scaled))
    for a, b in zip(one.rounds, other.rounds, strict=True):
        assert b.accuracy == pytest.approx(50 * a.accuracy)
        assert a.loss == b.loss


def test_the_worst_tenth_of_devices_has_the_largest_errors() -> None:
    records = run(config_of("regression"), dataset=made("regression"))
    for row in records.rows:
        assert row["devices_worst"] >= row["devices_mean"]


def test_linear_regression_finds_the_least_squares(task: str = "regression") -> None:
    """One device, whole batches, many rounds: the closed form."""
    data = made(task)
    settings = ("partition.kind=dirichlet", "partition.devices=1", "sessions=2", "local.batch=1000")
    steps = ("local.steps=50", "local.rule=each_step", "lr.initial=0.05", "lr.floor=1.0")
    config = config_of(task, *settings, *steps, "rounds=40", "methods=['previous']")
    records = run(config, dataset=data)
    world = build_world(config, data, 1)
    rows = np.concatenate([*world.sessions[1].shards.values()])
    x = np.c_[data.train.x.numpy()[rows], np.ones(len(rows))]
    best, *_ = np.linalg.lstsq(x, data.train.y.numpy()[rows], rcond=None)
    predicted = np.c_[data.test.x.numpy(), np.ones(len(data.test))] @ best
    error = np.sqrt(np.mean((predicted - data.test.y.numpy()) ** 2))
    assert records.rounds[-1].accuracy == pytest.approx(error, rel=1e-2)


@pytest.mark.parametrize(
    ("task", "data", "settings", "sentence"),
    [
        ("classes", "regression", (), 'task = "classes" needs one class for each sample'),
        ("binary", "classes", (), "is one of 3 classes"),
        ("regression", "classes", (), 'task = "regression" needs numbers'),
        ("multilabel", "regression", (), "needs zeros and ones"),
        ("regression", "regression", ("partition.overlap=0.5",), "divides samples by their labels"),
        ("regression", "regression", ("partition.kind=half",), "divides samples by their labels"),
        ("regression", "regression", ("faults.labels.devices=0.5",), "reverses labels"),
    ],
)
def test_data_and_settings_that_do_not_fit_a_task_are_refused(
    task: str, data: str, settings: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        run(config_of(task, *settings), dataset=made(data))


def test_a_measure_of_another_task_is_refused_with_those_there_are() -> None:
    with pytest.raises(EbbflowError, match="'auc'"):
        config_of("regression", "metrics=['auc']")


def test_an_objective_of_ones_own_is_for_classes() -> None:
    def own(*given: object) -> Tensor:
        return cross_entropy(*given)  # type: ignore[arg-type]

    with pytest.raises(EbbflowError, match="the algorithm mine has an objective of its own"):
        for_task(Algorithm("mine", objective=own), REGRESSION)
    world = build_world(config_of("regression"), made("regression"), 1)
    assert methods_of(world)


def test_a_measure_without_a_value_stops_the_run_with_a_sentence() -> None:
    data = made("binary")
    same = replace(data, test=replace(data.test, y=torch.ones_like(data.test.y)))
    with pytest.raises(EbbflowError, match="the measure auc has no value on the test samples"):
        run(config_of("binary", "metrics=['auc']"), dataset=same)


def test_outputs_that_are_not_finite_have_the_worst_score() -> None:
    task = replace(REGRESSION, metrics=("rmse", "r2"))
    found = task.measured(torch.tensor([[torch.nan], [1.0]]), torch.zeros(2, 1))
    assert found["rmse"] > 1e300 and found["r2"] < -1e300


def test_a_loss_of_ones_own_trains_every_start() -> None:
    """Cross-entropy handed over gives what cross-entropy gives, up to rounding."""
    LOSSES["mine"] = lambda outputs, truth: torch.nn.functional.cross_entropy(
        outputs, truth, reduction="none"
    )
    try:
        starts = "methods=['warm_start','previous','average']"
        own = run(config_of("classes", "loss=mine", starts), dataset=made("classes")).rounds
        usual = run(config_of("classes", starts), dataset=made("classes")).rounds
        for one, other in zip(own, usual, strict=True):
            assert one.loss == pytest.approx(other.loss, rel=1e-4)
        learnt = run(config_of("classes", "loss=mine", "methods=['auto']"), dataset=made("classes"))
        assert learnt.rounds
    finally:
        del LOSSES["mine"]
    with pytest.raises(EbbflowError, match="'mine'"):
        run(config_of("classes", "loss=mine"), dataset=made("classes"))
