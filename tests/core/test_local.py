"""Local training against hand calculation, and against `torch.optim.SGD` on plain modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.local import Batch, Recipe, loss_gradient, step_sum, train
from ebbflow.core.types import Labels, Layout, Model, ModelState, Output, State
from ebbflow.models import mlp, softmax
from tests.algorithms.toys import anchored, by_autograd, proximal

INPUTS, CLASSES, HIDDEN = 6, 4, 5
MODELS: dict[str, tuple[Model, Callable[[], nn.Module]]] = {
    "softmax": (softmax((INPUTS,), CLASSES), lambda: nn.Linear(INPUTS, CLASSES)),
    "mlp": (
        mlp((INPUTS,), CLASSES, HIDDEN),
        lambda: nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)),
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)
fedavg = Algorithm("fedavg")
HEAVY_BALL = Recipe(0.9)


def batch(size: int, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(100 * size + seed)
    x = torch.randn(size, INPUTS, generator=draw, dtype=torch.float64)
    y = torch.randint(CLASSES, (size,), generator=draw)
    return Batch(x, y, torch.full((size,), 1 / size, dtype=torch.float64))


def broadcast(model: Model, seed: int = 1, extras: State | None = None) -> Broadcast:
    theta, buffers = model.initial(torch.Generator().manual_seed(seed))
    return Broadcast(theta.double(), buffers.double(), extras or {})


def trained(
    model: Model,
    batches: Sequence[Batch],
    algorithm: Algorithm = fedavg,
    recipe: Recipe = HEAVY_BALL,
    lr: float = 0.1,
    shared: Broadcast | None = None,
    client: State | None = None,
) -> Tensor:
    """Return where a device of one sample ends."""
    shared = shared or broadcast(model)
    one = torch.tensor(1.0, dtype=torch.float64)
    upload, _ = train(model, algorithm, recipe, shared, client or {}, batches, lr, one)
    return shared.theta + upload.delta


Loss = Callable[[Tensor, Batch, nn.Module], Tensor]


def plain(logits: Tensor, batch: Batch, module: nn.Module) -> Tensor:
    return functional.cross_entropy(logits, batch.y)


def module_at(name: str, theta: Tensor) -> nn.Module:
    module = MODELS[name][1]().double()
    nn.utils.vector_to_parameters(theta.clone(), module.parameters())
    return module


def reference(
    name: str, batches: Sequence[Batch], momentum: float = 0.9, loss: Loss = plain
) -> Tensor:
    """Return where `torch.optim.SGD` on a plain module ends."""
    module = module_at(name, broadcast(MODELS[name][0]).theta)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum)
    for step in batches:
        optimiser.zero_grad()
        loss(module(step.x), step, module).backward()  # type: ignore[no-untyped-call]  # torch's
        optimiser.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def line(closed: bool) -> Model:
    """Return y = theta x, with or without its gradient in closed form."""

    def forward(
        theta: Tensor, buffers: Tensor, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Tensor]:
        return Output(theta * x, theta * x), buffers

    def pullback(theta: Tensor, x: Tensor, cotangent: Output) -> Tensor:
        return ((cotangent.logits + cotangent.features) * x).sum(0)

    return Model(
        "line",
        Layout(("slope",), ((1,),)),
        Layout((), ()),
        lambda _: ModelState(torch.zeros(1), torch.zeros(0)),
        forward,
        pullback=pullback if closed else None,
    )


def squared_error(output: Output, y: Labels, anchors: dict[str, Output], client: State) -> Tensor:
    return (output.logits.squeeze(-1) - y).square() / 2


@pytest.mark.parametrize("closed", [True, False])
def test_two_steps_on_a_parabola_are_those_of_the_blackboard(closed: bool) -> None:
    """Loss (w - 2)^2 / 2 from w = 0: v = -2, w = 0.2; v = 0.5 * -2 - 1.8 = -2.8, w = 0.48."""
    point = Batch(torch.ones(1, 1), torch.tensor([2]), torch.ones(1))
    seen: list[float] = []
    train(
        line(closed),
        Algorithm("least_squares", objective=squared_error),
        Recipe(0.5),
        Broadcast(torch.zeros(1), torch.zeros(0), {}),
        {},
        [point, point],
        0.1,
        torch.tensor(1.0),
        lambda theta: seen.append(float(theta)),
    )
    assert seen == pytest.approx([0.2, 0.48])


@given(st.integers(0, 60), st.floats(0, 0.99))
def test_step_sum_has_a_closed_form(steps: int, b: float) -> None:
    assert step_sum(steps, b) == pytest.approx((steps - b * (1 - b**steps) / (1 - b)) / (1 - b))


@given(st.integers(0, 60))
def test_step_sum_without_momentum_counts_the_steps(steps: int) -> None:
    assert step_sum(steps, 0.0) == steps


def test_step_sum_is_how_far_a_constant_direction_leads() -> None:
    slope = Algorithm("slope", direction=lambda gradient, *_: torch.ones_like(gradient))
    shared = broadcast(MODELS["softmax"][0])
    theta = trained(MODELS["softmax"][0], [batch(3)] * 7, slope, Recipe(0.8), 0.01, shared)
    torch.testing.assert_close(
        shared.theta - theta, torch.full_like(theta, 0.01 * step_sum(7, 0.8))
    )


@every_model
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_is_that_of_torch_sgd(name: str, momentum: float) -> None:
    batches = [batch(8), batch(8, 1), batch(3), batch(1)]
    theta = trained(MODELS[name][0], batches, recipe=Recipe(momentum))
    torch.testing.assert_close(theta, reference(name, batches, momentum), rtol=0, atol=1e-12)


@every_model
def test_the_closed_form_cotangent_is_that_of_autograd(name: str) -> None:
    model, batches = MODELS[name][0], [batch(8), batch(3)]
    autograd = trained(model, batches, by_autograd())
    torch.testing.assert_close(trained(model, batches), autograd, rtol=0, atol=1e-13)


@every_model
def test_one_step_goes_down_the_gradient_of_the_weighted_loss(name: str) -> None:
    model, shared, one = MODELS[name][0], broadcast(MODELS[name][0]), batch(5)
    uneven = one._replace(weights=torch.tensor([0.5, 0.1, 0.1, 0.3, 0.0], dtype=torch.float64))
    gradient, _ = loss_gradient(model, fedavg, shared.theta, shared.buffers, uneven, {}, {})
    module = module_at(name, shared.theta)
    losses = functional.cross_entropy(module(one.x), one.y, reduction="none")
    expected = torch.autograd.grad((losses * uneven.weights).sum(), list(module.parameters()))
    torch.testing.assert_close(gradient, nn.utils.parameters_to_vector(expected))


@every_model
@pytest.mark.parametrize("algorithm", [fedavg, by_autograd()], ids=lambda a: a.name)
def test_rows_of_weight_zero_change_nothing(name: str, algorithm: Algorithm) -> None:
    short, more = batch(5), batch(11)
    padded = Batch(
        torch.cat([short.x, more.x]),
        torch.cat([short.y, more.y]),
        torch.cat([short.weights, torch.zeros_like(more.weights)]),
    )
    model = MODELS[name][0]
    torch.testing.assert_close(
        trained(model, [padded] * 3, algorithm),
        trained(model, [short] * 3, algorithm),
        rtol=0,
        atol=1e-14,
    )


@every_model
def test_every_iterate_stays_in_the_ball(name: str) -> None:
    model = MODELS[name][0]
    shared, norms = broadcast(model), []
    radius = 1.01 * float(shared.theta.norm())
    train(
        model,
        fedavg,
        Recipe(0.9, radius),
        shared,
        {},
        [batch(8)] * 6,
        2.0,
        torch.tensor(1.0),
        lambda theta: norms.append(float(theta.norm())),
    )
    assert len(norms) == 6
    assert max(norms) == pytest.approx(radius)


@every_model
def test_a_ball_that_is_never_left_changes_no_bit(name: str) -> None:
    model, batches = MODELS[name][0], [batch(8), batch(3)]
    free = trained(model, batches, recipe=Recipe(0.9, None))
    assert torch.equal(free, trained(model, batches, recipe=Recipe(0.9, 1e6)))


@every_model
def test_momentum_is_fresh_in_every_round(name: str) -> None:
    """Rounds of one step each are plain gradient descent, whatever the momentum."""
    model = MODELS[name][0]
    first = trained(model, [batch(8)], recipe=Recipe(0.9))
    second = trained(model, [batch(3)], shared=broadcast(model)._replace(theta=first))
    expected = reference(name, [batch(8), batch(3)], momentum=0.0)
    torch.testing.assert_close(second, expected, rtol=0, atol=1e-12)


@every_model
def test_the_direction_hook_adds_the_gradient_of_a_proximal_term(name: str) -> None:
    start = broadcast(MODELS[name][0]).theta

    def loss(logits: Tensor, batch: Batch, module: nn.Module) -> Tensor:
        theta = nn.utils.parameters_to_vector(module.parameters())
        return functional.cross_entropy(logits, batch.y) + 0.7 / 2 * (theta - start).square().sum()

    batches = [batch(8), batch(3), batch(5)]
    theta = trained(MODELS[name][0], batches, proximal(0.7))
    torch.testing.assert_close(theta, reference(name, batches, loss=loss), rtol=0, atol=1e-12)


@every_model
def test_no_proximal_term_is_fedavg_to_the_bit(name: str) -> None:
    model, batches = MODELS[name][0], [batch(8), batch(3)]
    assert torch.equal(trained(model, batches, proximal(0.0)), trained(model, batches))


@every_model
def test_the_anchors_hook_distils_from_frozen_models(name: str) -> None:
    model = MODELS[name][0]
    start, before = broadcast(model), broadcast(model, seed=2).theta
    teacher, old = module_at(name, start.theta), module_at(name, before)

    def features(module: nn.Module, x: Tensor) -> Tensor:
        actual: Tensor = (module[:2] if isinstance(module, nn.Sequential) else module)(x)
        return actual

    def loss(logits: Tensor, batch: Batch, module: nn.Module) -> Tensor:
        with torch.no_grad():
            target, off = teacher(batch.x), features(old, batch.x)
        pull = (logits - target).square().sum(-1)
        push = functional.cosine_similarity(features(module, batch.x), off)
        extra: Tensor = (0.1 * pull + push).mean()
        return plain(logits, batch, module) + extra

    batches = [batch(8), batch(3), batch(5)]
    theta = trained(model, batches, anchored(), client={"before": before})
    torch.testing.assert_close(theta, reference(name, batches, loss=loss), rtol=0, atol=1e-12)


def test_the_objective_is_told_the_devices_state() -> None:
    def tempered(
        output: Output, labels: Labels, anchors: dict[str, Output], client: State
    ) -> Tensor:
        heat = client["temperature"]
        return functional.cross_entropy(output.logits / heat, labels, reduction="none")

    def loss(logits: Tensor, batch: Batch, module: nn.Module) -> Tensor:
        return functional.cross_entropy(logits / 3, batch.y)

    state = {"temperature": torch.tensor(3.0)}
    theta = trained(MODELS["mlp"][0], [batch(8)], Algorithm("t", objective=tempered), client=state)
    torch.testing.assert_close(theta, reference("mlp", [batch(8)], loss=loss))


def test_the_upload_hook_hears_what_the_device_did() -> None:
    heard: list[LocalRun] = []

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        heard.append(run)
        sent, _ = weighted_upload(shared, client, run)
        return sent, {"rounds": client["rounds"] + 1}

    model, samples = MODELS["softmax"][0], torch.tensor(12.0)
    shared, state = broadcast(model), {"rounds": torch.tensor(4)}
    batches = [batch(8), batch(4)]
    sent, after = train(
        model,
        Algorithm("counting", upload=upload),
        Recipe(0.9),
        shared,
        state,
        batches,
        0.1,
        samples,
    )
    (run,) = heard
    assert (run.steps, run.step_sum, run.lr) == (2, step_sum(2, 0.9), 0.1)
    assert torch.equal(sent.delta, samples * (run.theta - shared.theta))
    assert (int(state["rounds"]), int(after["rounds"])) == (4, 5)


def test_training_changes_nothing_it_is_given() -> None:
    model, one = MODELS["mlp"][0], batch(4)
    shared = broadcast(model)
    trained(model, [one], shared=shared)
    assert torch.equal(shared.theta, broadcast(model).theta)
    assert torch.equal(one.x, batch(4).x)
