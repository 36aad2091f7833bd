"""Any module as a pure function of its vectors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Model, ModelState
from ebbflow.models import from_module, mlp
from tests.models.samples import Tied, pulled_back, random_cotangent


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

    def forward(self, x: Tensor) -> list[Tensor]:  # type: ignore[override]  # wrong on purpose
        return [x]


class OwnNorm(nn.BatchNorm1d):
    """A batch norm by another name."""


def with_batch_norm(momentum: float | None = 0.1) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 3))


def inputs(rows: int = 8) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(0))


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
    model, x = from_module(build), inputs()
    state = start(model)
    output, _ = model.forward(state.theta, state.buffers, x, None, train)
    expected = module_at(build, state).train(train)(x)
    torch.testing.assert_close(output.logits, expected)
    torch.testing.assert_close(output.features, expected)


def test_a_module_may_return_its_features_too() -> None:
    model, x = from_module(Pair), inputs()
    state = start(model)
    output, _ = model.forward(state.theta, state.buffers, x, None, True)
    logits, features = module_at(Pair, state)(x)
    torch.testing.assert_close(output.logits, logits)
    torch.testing.assert_close(output.features, features)


def test_another_return_type_is_refused_in_a_sentence() -> None:
    model = from_module(lambda: Listing(6, 3), "mine")
    with pytest.raises(EbbflowError, match=r"the model mine returned list .*\(logits, features\)"):
        model.forward(start(model).theta, torch.zeros(0), inputs(), None, True)


def test_the_layout_names_the_parameters() -> None:
    model = from_module(Pair)
    assert model.layout.names == ("body.weight", "body.bias", "head.weight", "head.bias")
    assert model.layout.shapes == ((5, 6), (5,), (3, 5), (3,))


def test_only_float_buffers_travel() -> None:
    model = from_module(with_batch_norm)
    assert model.buffer_layout.names == ("1.running_mean", "1.running_var")
    assert start(model).buffers.tolist() == [0.0] * 4 + [1.0] * 4


def test_buffers_are_updated_in_training_and_only_there() -> None:
    model, x = from_module(with_batch_norm), inputs()
    state = start(model)
    module = module_at(with_batch_norm, state).train()
    module(x)
    running = torch.cat([b for b in module.buffers() if b.is_floating_point()])
    _, after = model.forward(state.theta, state.buffers, x, None, True)
    torch.testing.assert_close(after, running)
    _, still = model.forward(state.theta, state.buffers, x, None, False)
    assert torch.equal(still, state.buffers)


def test_forward_is_pure() -> None:
    """The same arguments give the same result, however often the model has been used before."""
    model, x = from_module(lambda: with_batch_norm(momentum=None)), inputs()
    state = start(model)
    first = model.forward(state.theta, state.buffers, x, None, True)
    second = model.forward(state.theta, state.buffers, x, None, True)
    assert torch.equal(first[0].logits, second[0].logits)
    assert torch.equal(first[1], second[1])
    assert torch.equal(state.buffers, start(model).buffers)


def test_the_gradient_through_batch_norm_is_that_of_autograd() -> None:
    model, x = from_module(with_batch_norm), inputs()
    state = start(model)
    output, gradient, buffers = pulled_back(model, state, x, None)
    module = module_at(with_batch_norm, state).train()
    cotangent = random_cotangent(output)
    loss = (module(x) * (cotangent.logits + cotangent.features)).sum()
    expected = torch.autograd.grad(loss, list(module.parameters()))
    running = torch.cat([b for b in module.buffers() if b.is_floating_point()])
    torch.testing.assert_close(gradient, nn.utils.parameters_to_vector(expected))
    torch.testing.assert_close(buffers, running)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, OwnNorm])
def test_batch_statistics_are_recognised(norm: type[nn.BatchNorm1d]) -> None:
    assert from_module(lambda: nn.Sequential(nn.Linear(6, 3), norm(3))).batch_statistics
    assert not from_module(Pair).batch_statistics


def test_convolutions_are_not_mapped_over_devices_unless_asked() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))

    assert not from_module(build).hints.vectorise
    assert from_module(build, vectorise=True).hints.vectorise
    assert from_module(Pair).hints.vectorise
    assert not from_module(Pair, vectorise=False).hints.vectorise


class Attention(nn.Module):
    """Attention as users write it, one head."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.all(x).chunk(3, -1)
        return functional.scaled_dot_product_attention(query, key, value).mean(1)


class Decorated(Attention):
    """The same by a decorated function."""

    @torch.enable_grad()
    def forward(self, x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(*self.all(x).chunk(3, -1)).mean(1)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True),
        Attention,
        Decorated,
    ],
)
def test_attention_is_not_mapped_over_devices_unless_asked(layer: Callable[[], nn.Module]) -> None:
    def build() -> nn.Module:
        return nn.Sequential(layer(), nn.Linear(6, 3))

    model = from_module(build)
    assert not model.hints.maps(on_gpu=False)
    assert model.hints.maps(on_gpu=True)
    assert from_module(build, vectorise=True).hints.vectorise


def test_building_and_drawing_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    start(from_module(Pair))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_initial_draw_is_a_function_of_the_generator() -> None:
    assert torch.equal(start(from_module(Pair), 1).theta, start(from_module(Pair), 1).theta)
    assert not torch.equal(start(from_module(Pair), 1).theta, start(from_module(Pair), 2).theta)


def test_threads_do_not_mix_their_parameters() -> None:
    """``functional_call`` swaps parameters in place: with one module for all, this would fail."""
    model, x = mlp((6,), 3, hidden=64), inputs(64)
    states = [start(model, seed) for seed in range(4)]
    alone = [model.forward(*state, x, None, True)[0].logits for state in states]
    together = Barrier(len(states))

    def often(state: ModelState) -> list[Tensor]:
        together.wait()
        return [model.forward(*state, x, None, True)[0].logits for _ in range(100)]

    with ThreadPoolExecutor(len(states)) as pool:
        for actual, expected in zip(pool.map(often, states), alone, strict=True):
            assert all(torch.equal(logits, expected) for logits in actual)


def test_one_thread_training_does_not_switch_another_to_training() -> None:
    model, x = from_module(lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))), inputs(64)
    state = start(model)
    expected = model.forward(*state, x, None, False)[0].logits
    together = Barrier(2)

    def often(train: bool) -> list[Tensor]:
        together.wait()
        noise = torch.rand(64, 1) if train else None
        return [model.forward(*state, x, noise, train)[0].logits for _ in range(100)]

    with ThreadPoolExecutor(2) as pool:
        training, evaluating = pool.submit(often, True), pool.submit(often, False)
        assert all(torch.equal(logits, expected) for logits in evaluating.result())
        assert not any(torch.equal(logits, expected) for logits in training.result())


# --- modes ---------------------------------------------------------------------------------------


class Held(nn.Module):
    """Keeps its batch norm in evaluation, as one does with a part that is not to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.body = with_batch_norm()

    def train(self, mode: bool = True) -> Held:
        super().train(mode)
        self.body.get_submodule("1").eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.body(x)
        return logits


def switched_off() -> nn.Module:
    """Return a module whose batch norm was switched off, which `train` switches on again."""
    module = with_batch_norm()
    module.get_submodule("1").eval()
    return module


@pytest.mark.parametrize(("build", "moves"), [(Held, False), (switched_off, True)])
def test_the_mode_of_each_layer_is_what_train_makes_it(
    build: Callable[[], nn.Module], moves: bool
) -> None:
    """Also in the first pass of a thread, and whether or not it has evaluated before."""
    model, x = from_module(build), inputs()
    state = start(model)

    def buffers() -> list[Tensor]:
        assert model.gradient is not None
        by_gradient = model.gradient(*state, x, None, random_cotangent)[1]
        return [by_gradient, model.forward(*state, x, None, True)[1]]

    def in_turn() -> list[Tensor]:
        before = buffers()
        model.forward(*state, x, None, False)
        return [*before, *buffers()]

    with ThreadPoolExecutor(1) as pool:
        found = [*pool.submit(in_turn).result(), *in_turn()]
    module = module_at(build, state).train()
    module(x)
    wanted = torch.cat([each for each in module.buffers() if each.is_floating_point()])
    assert torch.equal(wanted, state.buffers) is not moves
    for each in found:
        torch.testing.assert_close(each, wanted)


# --- random layers -------------------------------------------------------------------------------


class Noisy(nn.Linear):
    """Adds its noise to the logits; outside training there is none."""

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        logits = super().forward(x)
        return logits if noise is None else logits + noise


def test_a_module_is_given_its_noise() -> None:
    model, x = from_module(lambda: Noisy(6, 3), noise=(3,)), inputs()
    state, noise = start(model), torch.rand(8, 3)
    assert model.noise == (3,)
    assert not model.hints.own_draws
    plain, _ = model.forward(*state, x, None, False)
    noisy, _ = model.forward(*state, x, noise, True)
    torch.testing.assert_close(noisy.logits, plain.logits + noise)


def test_a_module_that_draws_itself_is_recognised() -> None:
    for layer in (nn.AlphaDropout(0.5), nn.GRU(3, 3, 2, dropout=0.5)):
        drawing = from_module(lambda layer=layer: nn.Sequential(nn.Linear(6, 3), layer))  # type: ignore[misc]
        assert drawing.hints.own_draws
    assert not from_module(Pair).hints.own_draws
    assert not from_module(lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))).hints.own_draws


# --- frozen parameters ---------------------------------------------------------------------------


def half_frozen() -> nn.Module:
    """Return a pair whose body was drawn but is not trained."""
    module = Pair()
    module.body.requires_grad_(False)
    return module


def loaded() -> nn.Module:
    """Return a pair whose body was loaded and is not trained."""
    module = half_frozen()
    with torch.no_grad():
        for parameter in module.get_submodule("body").parameters():
            parameter.fill_(0.25)
    return module


def test_frozen_parameters_are_no_part_of_theta() -> None:
    model = from_module(half_frozen)
    assert model.layout.names == ("head.weight", "head.bias")
    assert start(model).theta.shape == (18,)


def test_a_frozen_part_is_what_build_made_it() -> None:
    model, x = from_module(loaded), inputs()
    output, _ = model.forward(*start(model), x, None, True)
    expected = (x.sum(1, keepdim=True) / 4 + 0.25).tanh().expand(-1, 5)
    torch.testing.assert_close(output.features, expected)


def test_a_frozen_part_is_the_same_for_every_seed_process_and_thread() -> None:
    x = inputs()

    def features(seed: int) -> Tensor:
        torch.manual_seed(seed)  # another process may have drawn anything before
        model = from_module(half_frozen)
        state = start(model, seed)
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(model.forward, *state, x, None, True).result()[0].features
        here = model.forward(*state, x, None, True)[0].features
        assert torch.equal(here, elsewhere)
        return here

    with torch.random.fork_rng(devices=[]):
        assert torch.equal(features(1), features(2))


def test_the_gradient_beside_a_frozen_part_is_that_of_autograd() -> None:
    model, x = from_module(loaded), inputs()
    state = start(model)
    output, gradient, _ = pulled_back(model, state, x, None)
    module = loaded()
    trained = [p for p in module.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(state.theta.clone(), trained)
    cotangent = random_cotangent(output)
    logits, _ = module(x)
    expected = torch.autograd.grad((logits * cotangent.logits).sum(), trained)
    torch.testing.assert_close(gradient, nn.utils.parameters_to_vector(expected))


def test_a_module_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(EbbflowError, match=r"the model mine has nothing to train"):
        from_module(lambda: nn.Linear(6, 3).requires_grad_(False), "mine")


def test_tied_parameters_are_one() -> None:
    model, x = from_module(Tied), inputs()
    assert model.layout.names == ("up.weight", "up.bias", "down.bias")
    state = start(model)
    t = vector.unflatten(state.theta, model.layout)
    hidden = (x @ t["up.weight"].T + t["up.bias"]).tanh()
    expected = hidden @ t["up.weight"].T + t["down.bias"]
    torch.testing.assert_close(model.forward(*state, x, None, True)[0].logits, expected)
