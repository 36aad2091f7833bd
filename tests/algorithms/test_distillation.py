"""Distillation: its gradient, its targets, and the algorithm it is put on."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.local import loss_gradient
from ebbflow.core.types import Model, ModelState, Output
from ebbflow.models import mlp, softmax
from ebbflow.starts.continuous import distilled
from tests.algorithms.test_moon import batch, seen, state
from tests.engines.rounds import CLASSES, SHAPE, conv_normed

MODELS = [softmax(SHAPE, CLASSES), mlp(SHAPE, CLASSES, 12), conv_normed()]
KNOWN = (0, 2, 5)
Target = Literal["teacher", "mixed"]


def outputs(
    model: Model, algorithm: Algorithm, sent: ModelState, last: ModelState, x: Tensor
) -> dict[str, Output]:
    frozen = algorithm.anchors(Broadcast(*sent, {}), seen(last))
    return {name: model.forward(*one, x, None, False)[0] for name, one in frozen.items()}


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
@pytest.mark.parametrize(("kl", "temperature"), [(1.0, 1.0), (0.5, 1.0), (2.0, 2.5)])
def test_its_gradient_is_that_of_cross_entropy_and_divergence(
    model: Model, kl: float, temperature: float
) -> None:
    here, sent, teacher = (state(model, seed) for seed in (1, 2, 3))
    algorithm, one = distilled(ALGORITHMS["fedavg"](), teacher, KNOWN, kl, temperature), batch()
    anchors = outputs(model, algorithm, sent, sent, one.x)
    found, _ = loss_gradient(model, algorithm, *here, one, anchors, {})

    theta = here.theta.clone().requires_grad_()
    logits = model.forward(theta, here.buffers, one.x, None, True)[0].logits
    with torch.no_grad():
        taught = model.forward(*teacher, one.x, None, False)[0].logits
    divergence = functional.kl_div(
        functional.log_softmax(logits / temperature, 1),
        functional.softmax(taught / temperature, 1),
        reduction="batchmean",
    )
    loss = functional.cross_entropy(logits, one.y) + kl * temperature**2 * divergence
    (expected,) = torch.autograd.grad(loss, theta)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def target_of(
    logits: Tensor, labels: Tensor, target: Target, temperature: float, known: tuple[int, ...]
) -> Tensor:
    """Return the target, which is q minus the divergence's slope: kl T (q - p)."""
    teacher = ModelState(torch.zeros(1), torch.zeros(0))
    algorithm = distilled(ALGORITHMS["fedavg"](), teacher, known, 0.7, temperature, target)
    student = torch.randn(logits.shape, dtype=logits.dtype).requires_grad_()
    whole = algorithm.objective(
        Output(student, student), labels, {"teacher": Output(logits, logits)}, {}
    )
    own = functional.cross_entropy(student, labels, reduction="none")
    (slope,) = torch.autograd.grad((whole - own).sum(), student)
    return (functional.softmax(student / temperature, 1) - slope / (0.7 * temperature)).detach()


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("target", ["teacher", "mixed"])
def test_a_target_is_a_distribution(target: Target, temperature: float) -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(CLASSES, CLASSES, generator=draw, dtype=torch.float64)
    p = target_of(logits, torch.arange(CLASSES), target, temperature, KNOWN)
    assert float(p.min()) > -1e-12
    torch.testing.assert_close(p.sum(1), torch.ones(CLASSES, dtype=torch.float64))
    probabilities = functional.softmax(logits / temperature, 1)
    if target == "teacher":
        torch.testing.assert_close(p, probabilities)


def test_a_mixed_target_has_the_teachers_word_on_what_it_knew_and_the_label_elsewhere() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(CLASSES, CLASSES, generator=draw, dtype=torch.float64)
    p = target_of(logits, torch.arange(CLASSES), "mixed", 1.0, KNOWN)
    probabilities = functional.softmax(logits, 1)
    for label in range(CLASSES):
        old = probabilities[label, list(KNOWN)]
        if label in KNOWN:
            expected = {k: float(v / old.sum()) for k, v in zip(KNOWN, old, strict=True)}
        else:
            whole = 1 + float(old.sum())
            expected = {k: float(v) / whole for k, v in zip(KNOWN, old, strict=True)}
            expected[label] = 1 / whole
        row = [expected.get(k, 0.0) for k in range(CLASSES)]
        assert p[label].tolist() == pytest.approx(row, abs=1e-12)


def test_a_teacher_that_is_certain_gives_numbers() -> None:
    logits = torch.full((2, CLASSES), -2000.0)
    logits[:, 3] = 2000.0
    output = Output(torch.zeros(2, CLASSES), torch.zeros(2, CLASSES))
    for target in ("teacher", "mixed"):
        teacher = ModelState(torch.zeros(1), torch.zeros(0))
        algorithm = distilled(ALGORITHMS["fedavg"](), teacher, (3, 4), 1.0, 1.0, target)
        anchors = {"teacher": Output(logits, logits)}
        losses = algorithm.objective(output, torch.tensor([3, 3]), anchors, {})
        assert losses.tolist() == pytest.approx([2 * math.log(CLASSES)] * 2)


def test_without_weight_it_is_the_algorithm_itself() -> None:
    base = ALGORITHMS["fedprox"]()
    assert distilled(base, state(MODELS[0], 1), KNOWN, 0.0) is base


def test_on_moon_both_losses_count() -> None:
    model, one = MODELS[1], batch()
    here, sent, last, teacher = (state(model, seed) for seed in (1, 2, 3, 4))
    base = ALGORITHMS["moon"]()
    both = distilled(base, teacher, KNOWN, 0.5)
    alone = distilled(ALGORITHMS["fedavg"](), teacher, KNOWN, 0.5)
    slopes = []
    for algorithm in (both, base, alone, ALGORITHMS["fedavg"]()):
        anchors = outputs(model, algorithm, sent, last, one.x)
        slope, _ = loss_gradient(model, algorithm, *here, one, anchors, seen(last))
        slopes.append(slope)
    torch.testing.assert_close(slopes[0], slopes[1] + slopes[2] - slopes[3])
    assert both.init_client is base.init_client
    assert both.upload is base.upload
