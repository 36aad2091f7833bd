"""Tasks: derivatives against autograd, measures against scikit-learn and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as learn
from torch import Tensor
from torch.func import hessian, jacrev

from ebbflow.core import measures
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import JUDGES, MEASURES, judge_of
from ebbflow.core.tasks import (
    PADDING,
    TASKS,
    Task,
    expanded_loss,
    register_loss,
    register_metric,
    with_loss,
)

SAMPLES, OUTPUTS, LENGTH, MODELS = 5, 4, 3, 3


def example(task: Task, seed: int) -> tuple[Tensor, Tensor]:
    """Return outputs and truth of some samples, in double precision."""
    draw = torch.Generator().manual_seed(seed)
    shape = (SAMPLES, LENGTH, OUTPUTS) if task.name == "tokens" else (SAMPLES, OUTPUTS)
    outputs = torch.randn(shape, generator=draw, dtype=torch.float64)
    if task.name == "regression":
        return outputs, torch.randn(shape, generator=draw, dtype=torch.float64)
    if task.name == "multilabel":
        return outputs, torch.randint(2, shape, generator=draw).double()
    truth = torch.randint(OUTPUTS, shape[:-1], generator=draw)
    if task.name == "tokens":
        truth[0, 1:], truth[1, 0] = PADDING, PADDING
    return outputs, truth


every_task = pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))


@every_task
@pytest.mark.parametrize("seed", range(5))
def test_derivatives_are_those_of_the_loss(task: Task, seed: int) -> None:
    """J^T g and J^T H J, with g and H of every sample by autograd; all losses are convex in z."""
    outputs, truth = example(task, seed)
    draw = torch.Generator().manual_seed(100 + seed)
    jacobian = torch.randn((*outputs.shape, MODELS), generator=draw, dtype=torch.float64)
    counts = torch.rand(SAMPLES, generator=draw, dtype=torch.float64)
    slope, curvature = expanded_loss(task, outputs, truth, counts, jacobian)
    first, second = torch.zeros(MODELS).double(), torch.zeros(MODELS, MODELS).double()
    for n in range(SAMPLES):

        def loss(z: Tensor, n: int = n) -> Tensor:
            return task.loss(z.view(outputs[n].shape)[None], truth[n][None])[0]

        flat, along = outputs[n].flatten(), jacobian[n].reshape(-1, MODELS)
        first += counts[n] * along.T @ jacrev(loss)(flat)
        second += counts[n] * along.T @ hessian(loss)(flat) @ along
    torch.testing.assert_close(slope, first)
    torch.testing.assert_close(curvature, second)


@pytest.mark.parametrize("name", ["classes", "tokens"])
@pytest.mark.parametrize("seed", range(5))
def test_certain_predictions_have_no_negative_curvature(name: str, seed: int) -> None:
    """In single precision, as devices compute it, and to some digits."""
    outputs, truth = example(TASKS[name], seed)
    outputs = (40 * outputs).float()
    jacobian = 300 * torch.randn((*outputs.shape, MODELS), generator=torch.manual_seed(seed))
    counts = torch.ones(SAMPLES)
    _, single = expanded_loss(TASKS[name], outputs, truth, counts, jacobian)
    _, double = expanded_loss(
        TASKS[name], outputs.double(), truth, counts.double(), jacobian.double()
    )
    values = torch.linalg.eigvalsh(single.double())
    assert float(values.min()) >= -1e-5 * float(values.max())
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4 * float(double.max()))


@every_task
def test_a_student_like_its_teacher_is_not_apart_from_it(task: Task) -> None:
    outputs, _ = example(task, 1)
    for temperature in (1.0, 2.5):
        same = task.divergence(outputs, outputs, temperature)
        assert same.shape == (SAMPLES,)
        torch.testing.assert_close(same, torch.zeros(SAMPLES).double(), atol=1e-12, rtol=0)
        assert (
            task.divergence(outputs + torch.randn_like(outputs), outputs, temperature) > 0
        ).all()


@every_task
def test_every_measure_of_a_task_has_a_description(task: Task) -> None:
    assert set(MEASURES[task.name]) == set(task.known)
    assert set(task.known) <= set(JUDGES)
    assert judge_of(task.name, ()).name == MEASURES[task.name][0]


def test_areas_under_the_curve_are_scikit_learns() -> None:
    draw = np.random.default_rng(0)
    for case in range(1000):
        size = int(draw.integers(2, 60))
        scores = draw.normal(size=size)
        if case % 2:  # with ties
            scores = np.round(scores)
        truth = draw.integers(2, size=size)
        outputs = np.stack([np.zeros(size), scores], 1)
        found = measures.auc(outputs, truth)
        if len(np.unique(truth)) < 2:
            assert math.isnan(found)
        else:
            assert found == pytest.approx(100 * learn.roc_auc_score(truth, scores), abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_measures_of_classes_are_scikit_learns(classes: int) -> None:
    draw = np.random.default_rng(classes)
    for _ in range(200):
        outputs = draw.normal(size=(int(draw.integers(5, 50)), classes))
        truth = draw.integers(classes, size=len(outputs))
        found = outputs.argmax(1)
        assert measures.accuracy(outputs, truth) == pytest.approx(
            100 * learn.accuracy_score(truth, found)
        )
        present = np.unique(truth)
        recalls = learn.recall_score(truth, found, labels=present, average=None, zero_division=0)
        assert measures.balanced_accuracy(outputs, truth) == pytest.approx(100 * recalls.mean())
        labels, average = ([1], "macro") if classes == 2 else (list(present), "macro")
        f1 = learn.f1_score(truth, found, labels=labels, average=average, zero_division=0)
        assert measures.f1(outputs, truth) == pytest.approx(100 * f1)


def test_areas_of_several_classes_are_means_of_each_against_the_others() -> None:
    draw = np.random.default_rng(5)
    for _ in range(100):
        outputs, truth = draw.normal(size=(60, 4)), np.arange(60) % 4
        chances = torch.softmax(torch.from_numpy(outputs), 1).numpy()
        expected = learn.roc_auc_score(truth, chances, multi_class="ovr")
        assert measures.auc(outputs, truth) == pytest.approx(100 * expected)


def test_measures_of_several_labels_are_scikit_learns() -> None:
    draw = np.random.default_rng(6)
    outputs, truth = draw.normal(size=(80, 5)), draw.integers(2, size=(80, 5)).astype(float)
    found = outputs > 0
    expected = learn.f1_score(truth, found, average="micro")
    assert measures.label_f1(outputs, truth) == pytest.approx(100 * expected)
    area = learn.roc_auc_score(truth, outputs, average="macro")
    assert measures.label_auc(outputs, truth) == pytest.approx(100 * area)
    assert measures.label_accuracy(outputs, truth) == pytest.approx(100 * (found == truth).mean())


@given(st.integers(2, 40), st.integers(1, 3), st.integers(0, 10**6))
def test_measures_of_numbers_are_scikit_learns(samples: int, outputs: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    found, truth = draw.normal(size=(2, samples, outputs))
    assert measures.rmse(found, truth) == pytest.approx(
        math.sqrt(learn.mean_squared_error(truth, found))
    )
    assert measures.mae(found, truth) == pytest.approx(learn.mean_absolute_error(truth, found))
    assert measures.r2(found, truth) == pytest.approx(learn.r2_score(truth, found))


def test_perplexity_is_the_number_of_equally_likely_tokens() -> None:
    task = TASKS["tokens"]
    truth = torch.tensor([[1, 2, PADDING]])
    kept = task.kept(torch.zeros(1, 3, 9), truth)
    assert measures.perplexity(kept.numpy(), truth.numpy()) == pytest.approx(9)
    sure = torch.nn.functional.one_hot(truth.clamp_min(0), 9) * 50.0
    kept = task.kept(sure, truth)
    assert measures.perplexity(kept.numpy(), truth.numpy()) == pytest.approx(1)
    assert measures.token_accuracy(kept.numpy(), truth.numpy()) == 100


def test_two_classes_are_a_single_logit() -> None:
    """A logit z is the pair (0, z): loss and derivative are those of binary cross-entropy."""
    z = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = torch.arange(20) % 2
    pair = torch.stack([torch.zeros_like(z), z], 1)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(z, y.double(), reduction="none")
    torch.testing.assert_close(TASKS["binary"].loss(pair, y), expected)
    slope = TASKS["binary"].slopes(pair, y).slope[:, 1]
    torch.testing.assert_close(slope, torch.sigmoid(z) - y)


@every_task
def test_a_loss_of_ones_own_is_expanded_like_the_tasks(task: Task) -> None:
    """With the task's own loss handed over as a user's, derivatives are the same."""
    outputs, truth = example(task, 3)
    jacobian = torch.randn((*outputs.shape, MODELS), dtype=torch.float64)
    counts = torch.rand(SAMPLES, dtype=torch.float64)
    own = expanded_loss(with_loss(task, task.loss), outputs, truth, counts, jacobian)
    for one, other in zip(own, expanded_loss(task, outputs, truth, counts, jacobian), strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_negative_of_a_curvature_counts_as_zero() -> None:
    def hollow(outputs: Tensor, truth: Tensor) -> Tensor:
        return (outputs[:, 0].square() - outputs[:, 1].square()).flatten()

    task = with_loss(TASKS["regression"], hollow)
    jacobian = torch.eye(2, dtype=torch.float64)[None]
    outputs = torch.ones(1, 2, dtype=torch.float64)
    slope, curvature = expanded_loss(task, outputs, outputs, torch.ones(1).double(), jacobian)
    assert slope.tolist() == [2.0, -2.0]
    torch.testing.assert_close(curvature, torch.diag(torch.tensor([2.0, 0.0])).double())


@pytest.mark.parametrize("name", ["accuracy", "no name", ""])
def test_names_that_are_taken_or_no_names_are_refused(name: str) -> None:
    with pytest.raises(EbbflowError):
        register_metric(name, measures.rmse)
    with pytest.raises(EbbflowError):
        register_loss("no name", TASKS["regression"].loss)
