"""Accuracy and loss are means over the test samples, however they are cut."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ebbflow.core import evaluate as module
from ebbflow.core.evaluate import evaluate, labelled
from ebbflow.core.types import Examples, ModelState
from ebbflow.models import from_module, softmax


def examples(count: int, classes: int = 4) -> Examples:
    draw = torch.Generator().manual_seed(5)
    y = torch.randint(classes, (count,), generator=draw)
    return Examples(torch.randn(count, 6, generator=draw), y)


def test_labelled_keeps_the_wanted_samples_in_order() -> None:
    kept = labelled(examples(50), [0, 3])
    wanted = [i for i, label in enumerate(examples(50).y.tolist()) if label in (0, 3)]
    assert torch.equal(kept.x, examples(50).x[wanted])
    assert torch.equal(kept.y, examples(50).y[wanted])


def test_all_labels_keep_everything_and_none_keep_nothing() -> None:
    assert len(labelled(examples(20), range(4))) == 20
    assert len(labelled(examples(20), [])) == 0


def test_a_zero_model_guesses_class_zero_at_a_loss_of_log_classes() -> None:
    test = examples(40)
    zero = ModelState(torch.zeros(28), torch.zeros(0))
    accuracy, loss, _ = evaluate(softmax((6,), 4), zero, test)
    assert accuracy == pytest.approx(100 * float((test.y == 0).double().mean()))
    assert loss == pytest.approx(math.log(4), rel=1e-6)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model, test = softmax((6,), 4), examples(303)
    state = model.initial(torch.Generator().manual_seed(0))
    logits = model.forward(state.theta, state.buffers, test.x, None, False)[0].logits
    monkeypatch.setattr(module, "NUMBERS", 6 * 100)
    accuracy, loss, _ = evaluate(model, state, test)
    assert accuracy == pytest.approx(100 * float((logits.argmax(1) == test.y).double().mean()))
    assert loss == pytest.approx(float(functional.cross_entropy(logits, test.y)), rel=1e-6)


def test_the_model_is_in_evaluation_mode() -> None:
    model, test = from_module(lambda: nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.9))), examples(30)
    state = model.initial(torch.Generator().manual_seed(0))
    assert evaluate(model, state, test) == evaluate(model, state, test)
