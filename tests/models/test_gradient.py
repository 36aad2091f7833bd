"""A module's own gradient: that of its forward pass, and nobody else's memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

from ebbflow.core.types import Buffers, Model, ModelState, Output
from ebbflow.models import MODELS, cnn, from_module, resnet18
from tests.models.samples import (
    Tied,
    doubled,
    draws,
    images,
    inputs,
    pulled_back,
    random_cotangent,
    start,
    tiny,
)

every_module = pytest.mark.parametrize(
    "kind", [kind for kind in MODELS if tiny(kind).gradient is not None]
)


def own_gradient(model: Model, state: ModelState, x: Tensor) -> tuple[Tensor, Buffers]:
    assert model.gradient is not None
    return model.gradient(*state, x, draws(model, len(x)), random_cotangent)


def assert_near(actual: Tensor, expected: Tensor, within: float = 1e-6) -> None:
    """Compare vectors by their distance, relative to the length of the expected one."""
    assert float((actual - expected).norm()) <= within * float(expected.norm())


def test_modules_have_a_gradient_of_their_own_and_closed_forms_need_none() -> None:
    assert [kind for kind in MODELS if tiny(kind).gradient is None] == ["softmax", "embedding"]
    assert [kind for kind in MODELS if tiny(kind).pullback] == ["softmax", "embedding"]
    assert tiny("cnn").mapped().gradient is None


@every_module
def test_the_gradient_is_that_of_the_forward_pass(kind: str) -> None:
    """In double precision: layers may be laid out otherwise, and so add up in another order."""
    model, x = tiny(kind), inputs(kind, 6).double()
    state = doubled(start(model))
    _, expected, after = pulled_back(model, state, x, draws(model, 6))
    gradient, buffers = own_gradient(model, state, x)
    assert_near(gradient, expected, 1e-12)
    torch.testing.assert_close(buffers, after, rtol=0, atol=1e-13)


def test_so_it_is_with_group_norm() -> None:
    model, x = resnet18((3, 16, 16), 5, norm="group"), images(4, (3, 16, 16)).double()
    state = doubled(start(model))
    _, expected, _ = pulled_back(model, state, x, None)
    assert_near(own_gradient(model, state, x)[0], expected, 1e-12)


@every_module
def test_what_comes_back_is_the_callers_own(kind: str) -> None:
    model, x = tiny(kind), inputs(kind, 4)
    state, before = start(model), start(model)
    first, buffers = own_gradient(model, state, x)
    kept = first.clone()
    assert not first.requires_grad
    assert not buffers.requires_grad
    second, _ = own_gradient(model, state, x)
    second.zero_()
    buffers.fill_(7)
    assert torch.equal(first, kept)
    assert torch.equal(state.theta, before.theta)
    assert torch.equal(state.buffers, before.buffers)
    assert not state.theta.requires_grad


def test_theta_may_change_in_place_afterwards() -> None:
    model, x = tiny("cnn"), inputs("cnn", 4)
    state = start(model)
    gradient, _ = own_gradient(model, state, x)
    state.theta.sub_(gradient, alpha=0.1)
    moved = ModelState(start(model).theta - 0.1 * gradient, start(model).buffers)
    assert_near(own_gradient(model, state, x)[0], own_gradient(model, moved, x)[0])


def test_it_does_not_matter_whether_the_caller_records_gradients() -> None:
    model, x = tiny("cnn"), inputs("cnn", 4)
    expected, _ = own_gradient(model, start(model), x)
    with torch.no_grad():
        assert torch.equal(own_gradient(model, start(model), x)[0], expected)
    recorded = ModelState(start(model).theta.requires_grad_(), start(model).buffers)
    actual, _ = own_gradient(model, recorded, x)
    assert torch.equal(actual, expected)
    assert recorded.theta.grad is None


def test_threads_do_not_mix_their_gradients() -> None:
    model, x = cnn((3, 8, 8), 5), images(8, (3, 8, 8))
    states = [start(model, seed) for seed in range(3)]
    alone = [own_gradient(model, state, x) for state in states]
    together = Barrier(len(states))

    def often(state: ModelState) -> list[tuple[Tensor, Buffers]]:
        together.wait()
        return [own_gradient(model, state, x) for _ in range(5)]

    with ThreadPoolExecutor(len(states)) as pool:
        for actual, (gradient, buffers) in zip(pool.map(often, states), alone, strict=True):
            assert all(torch.equal(g, gradient) and torch.equal(b, buffers) for g, b in actual)


# --- modules of all sorts ------------------------------------------------------------------------


class Spare(nn.Module):
    """Has a layer that its forward pass does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.used(x)
        return logits


class Frozen(nn.Module):
    """Has features that no trained parameter touches."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 4).requires_grad_(False), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return self.head(features), features


class Constant(nn.Linear):
    """Returns what depends on no parameter."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("build", [Spare, Frozen, Tied, lambda: Constant(6, 6)])
def test_the_gradient_of_any_module_is_that_of_its_forward_pass(
    build: Callable[[], nn.Module],
) -> None:
    model, x = from_module(build), images(5, (6,))
    _, expected, _ = pulled_back(model, start(model), x, None)
    gradient, _ = own_gradient(model, start(model), x)
    torch.testing.assert_close(gradient, expected)


def test_the_loss_sees_numbers_without_a_graph() -> None:
    model, seen = tiny("cnn"), list[Output]()

    def cotangent(output: Output) -> Output:
        seen.append(output)
        return random_cotangent(output)

    assert model.gradient is not None
    model.gradient(*start(model), inputs("cnn", 3), draws(model, 3), cotangent)
    (output,) = seen
    expected, _ = model.forward(*start(model), inputs("cnn", 3), draws(model, 3), True)
    for actual, other in zip(output, expected, strict=True):
        assert not actual.requires_grad
        torch.testing.assert_close(actual, other)
