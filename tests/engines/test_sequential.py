"""The reference engine says where training went wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Never

import pytest
import torch
from torch import Tensor

from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.errors import EbbflowError, HookError, TrainingError
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.types import Buffers, Model, Output, State, Theta
from ebbflow.engines import Sequential
from ebbflow.models import softmax
from tests.engines.rounds import CLASSES, SHAPE, cohort, examples, lane, reference

SOFTMAX = softmax(SHAPE, CLASSES)
FEDAVG = Algorithm("fedavg")


def failing_at(call: int, error: Exception) -> Model:
    """Return a model whose n-th forward pass raises."""
    calls = count(1)

    def forward(
        theta: Theta, buffers: Buffers, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Buffers]:
        if next(calls) == call:
            raise error
        return SOFTMAX.forward(theta, buffers, x, noise, train)

    return replace(SOFTMAX, forward=forward)


def run(model: Model, at: Lane, who: Cohort) -> list[Trained]:
    return reference(model, [at], who)


def test_divergence_is_named_by_session_round_device_and_step() -> None:
    """A constant slope of 1e38 leads to 1e38, 2.9e38 and 5.61e38: the third is beyond float32."""

    def steep(gradient: Tensor, theta: Theta, shared: Broadcast, client: State) -> Tensor:
        return torch.full_like(gradient, 1e38 if "hot" in client else 0.0)

    at = lane(SOFTMAX, Algorithm("steep", direction=steep), lr=1.0, clients={11: {"hot": Tensor()}})
    with pytest.raises(TrainingError) as caught:
        run(SOFTMAX, at, cohort([(4, 4, 4, 4)] * 3))
    assert str(caught.value) == (
        "session 3, round 2, device 11, step 3: the local model is no longer finite; lower "
        "lr.initial (now 1 in this round) or set local.radius"
    )


def test_a_huge_rate_is_called_divergence() -> None:
    with pytest.raises(
        TrainingError, match=r"device 10, step \d: .* lower lr.initial \(now 1e\+38"
    ):
        run(SOFTMAX, lane(SOFTMAX, FEDAVG, lr=1e38), cohort([(8, 8, 8, 8)]))


def test_a_projection_saves_a_large_rate() -> None:
    engine = Sequential(SOFTMAX, examples(), Recipe(0.9, radius=1.0))
    upload, _ = engine([lane(SOFTMAX, FEDAVG, lr=1e6)], cohort([(8, 8, 8, 8)]))[0]
    assert bool(torch.isfinite(upload.delta).all())


@pytest.mark.parametrize(("call", "device", "step"), [(1, 10, 1), (2, 10, 2), (3, 11, 1)])
def test_an_exception_in_the_forward_pass_is_named_too(call: int, device: int, step: int) -> None:
    model = failing_at(call, RuntimeError("shapes do not match"))
    where = f"^session 3, round 2, device {device}, step {step}: RuntimeError: shapes do not match$"
    with pytest.raises(HookError, match=where) as caught:
        run(model, lane(model, FEDAVG), cohort([(4, 4), (4, 4)]))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_that_is_a_sentence_already_passes_as_it_is() -> None:
    model = failing_at(1, EbbflowError("say this"))
    with pytest.raises(EbbflowError, match=r"^say this$"):
        run(model, lane(model, FEDAVG), cohort([(4,)]))


def test_an_exception_after_the_last_step_does_not_name_a_step_that_never_was() -> None:
    def upload(*_: object) -> Never:
        raise RuntimeError("nothing to send")

    broken = Algorithm("broken", upload=upload)
    with pytest.raises(HookError, match="device 10, after the last step: RuntimeError: nothing"):
        run(SOFTMAX, lane(SOFTMAX, broken), cohort([(4, 4)]))
