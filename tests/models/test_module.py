"""Any module as a pure function of its vectors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Batch, loss_gradient
from ebbflow.core.types import Model, ModelState
from ebbflow.models import from_module, mlp


class Pair(nn.Module):
    """Returns (logits, features)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x).tanh()
        return self.head(features), features


class Listing(nn.Linear):
    """Returns a list, which is none of the things it may return."""

    def forward(self, x: Tensor) -> list[Tensor]:  # type: ignore[override]
        return [x]


class OwnNorm(nn.BatchNorm1d):
    """A batch norm by another name."""


def with_batch_norm(momentum: float | None = 0.1) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 3))


def batch(rows: int = 8, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=draw)
    return Batch(x, torch.randint(3, (rows,), generator=draw), torch.full((rows,), 1 / rows))


def start(model: Model, seed: int = 0) -> ModelState:
    return model.initial(torch.Generator().manual_seed(seed))


def module_at(build: Callable[[], nn.Module], state: ModelState) -> nn.Module:
    """Return the module itself with the parameters of a freshly initialised state."""
    module = build()
    nn.utils.vector_to_parameters(state.theta.clone(), module.parameters())
    return module


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Linear(6, 3),
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
        with_batch_norm,
    ],
    ids=["linear", "sequential", "batch_norm"],
)
@pytest.mark.parametrize("train", [True, False])
def test_forward_is_the_modules_own(build: Callable[[], nn.Module], train: bool) -> None:
    model, x = from_module(build), batch().x
    state = start(model)
    output, _ = model.forward(state.theta, state.buffers, x, train)
    expected = module_at(build, state).train(train)(x)
    torch.testing.assert_close(output.logits, expected)
    torch.testing.assert_close(output.features, expected)


def test_a_module_may_return_its_features_too() -> None:
    model, x = from_module(Pair), batch().x
    state = start(model)
    output, _ = model.forward(state.theta, state.buffers, x, True)
    logits, features = module_at(Pair, state)(x)
    torch.testing.assert_close(output.logits, logits)
    torch.testing.assert_close(output.features, features)


def test_another_return_type_is_refused_in_a_sentence() -> None:
    model = from_module(lambda: Listing(6, 3), "mine")
    with pytest.raises(EbbflowError, match=r"the model mine returned list .*\(logits, features\)"):
        model.forward(start(model).theta, torch.zeros(0), batch().x, True)


def test_the_layout_names_the_parameters() -> None:
    model = from_module(Pair)
    assert model.layout.names == ("body.weight", "body.bias", "head.weight", "head.bias")
    assert model.layout.shapes == ((5, 6), (5,), (3, 5), (3,))


def test_only_float_buffers_travel() -> None:
    model = from_module(with_batch_norm)
    assert model.buffer_layout.names == ("1.running_mean", "1.running_var")
    assert start(model).buffers.tolist() == [0.0] * 4 + [1.0] * 4


def test_buffers_are_updated_in_training_and_only_there() -> None:
    model, x = from_module(with_batch_norm), batch().x
    state = start(model)
    module = module_at(with_batch_norm, state).train()
    module(x)
    running = torch.cat([b for b in module.buffers() if b.is_floating_point()])
    _, after = model.forward(state.theta, state.buffers, x, True)
    torch.testing.assert_close(after, running)
    _, still = model.forward(state.theta, state.buffers, x, False)
    assert torch.equal(still, state.buffers)


def test_forward_is_pure() -> None:
    """The same arguments give the same result, however often the model has been used before."""
    model, x = from_module(lambda: with_batch_norm(momentum=None)), batch().x
    state = start(model)
    first = model.forward(state.theta, state.buffers, x, True)
    second = model.forward(state.theta, state.buffers, x, True)
    assert torch.equal(first[0].logits, second[0].logits)
    assert torch.equal(first[1], second[1])
    assert torch.equal(state.buffers, start(model).buffers)


def test_the_gradient_through_batch_norm_is_that_of_autograd() -> None:
    model, one = from_module(with_batch_norm), batch()
    state = start(model)
    module = module_at(with_batch_norm, state).train()
    loss = nn.functional.cross_entropy(module(one.x), one.y)
    expected = torch.autograd.grad(loss, list(module.parameters()))
    running = torch.cat([b for b in module.buffers() if b.is_floating_point()])
    gradient, buffers = loss_gradient(
        model, Algorithm("fedavg"), state.theta, state.buffers, one, {}, {}
    )
    torch.testing.assert_close(gradient, nn.utils.parameters_to_vector(expected))
    torch.testing.assert_close(buffers, running)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, OwnNorm])
def test_batch_statistics_are_recognised(norm: type[nn.BatchNorm1d]) -> None:
    assert from_module(lambda: nn.Sequential(nn.Linear(6, 3), norm(3))).batch_statistics
    assert not from_module(Pair).batch_statistics


def test_convolutions_are_not_mapped_over_devices_unless_asked() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))

    assert not from_module(build).vectorise
    assert from_module(build, vectorise=True).vectorise
    assert from_module(Pair).vectorise
    assert not from_module(Pair, vectorise=False).vectorise


def test_building_and_drawing_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    start(from_module(Pair))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_initial_draw_is_a_function_of_the_generator() -> None:
    assert torch.equal(start(from_module(Pair), 1).theta, start(from_module(Pair), 1).theta)
    assert not torch.equal(start(from_module(Pair), 1).theta, start(from_module(Pair), 2).theta)


def test_threads_do_not_mix_their_parameters() -> None:
    """``functional_call`` swaps parameters in place: with one module for all, this would fail."""
    model, x = mlp((6,), 3, hidden=64), batch(64).x
    states = [start(model, seed) for seed in range(4)]
    alone = [model.forward(*state, x, True)[0].logits for state in states]
    together = Barrier(len(states))

    def often(state: ModelState) -> list[Tensor]:
        together.wait()
        return [model.forward(*state, x, True)[0].logits for _ in range(100)]

    with ThreadPoolExecutor(len(states)) as pool:
        for found, expected in zip(pool.map(often, states), alone, strict=True):
            assert all(torch.equal(logits, expected) for logits in found)


def test_one_thread_training_does_not_switch_another_to_training() -> None:
    model, x = from_module(lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))), batch(64).x
    state = start(model)
    expected = model.forward(*state, x, False)[0].logits
    together = Barrier(2)

    def often(train: bool) -> list[Tensor]:
        together.wait()
        return [model.forward(*state, x, train)[0].logits for _ in range(100)]

    with ThreadPoolExecutor(2) as pool:
        training, evaluating = pool.submit(often, True), pool.submit(often, False)
        assert all(torch.equal(logits, expected) for logits in evaluating.result())
        assert not any(torch.equal(logits, expected) for logits in training.result())
