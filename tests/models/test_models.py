"""The models of the registry: sizes, gradients, draws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.nn import functional

from ebbflow.core.types import Model, Output
from ebbflow.models import MODELS, mlp, softmax

IMAGE = (1, 28, 28)
every_model = pytest.mark.parametrize("model", [b(IMAGE, 10) for b in MODELS.values()], ids=MODELS)


def images(count: int, shape: tuple[int, ...] = IMAGE) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(3))


def drawn(model: Model, seed: int = 0) -> Tensor:
    return model.initial(torch.Generator().manual_seed(seed)).theta


@pytest.mark.parametrize(("name", "parameters"), [("softmax", 7_850), ("mlp", 159_010)])
def test_a_model_has_its_number_of_parameters(name: str, parameters: int) -> None:
    model = MODELS[name](IMAGE, 10)
    assert model.layout.total == parameters
    assert drawn(model).shape == (parameters,)
    assert model.buffer_layout.total == 0


def test_softmax_is_an_affine_map_of_the_pixels() -> None:
    model, x = softmax(IMAGE, 10), images(4)
    theta = drawn(model)
    output, _ = model.forward(theta, torch.zeros(0), x, True)
    expected = x.flatten(1) @ theta[:7840].view(10, 784).T + theta[7840:]
    torch.testing.assert_close(output.logits, expected)


def test_mlp_is_a_map_through_200_rectified_units() -> None:
    model, x = mlp(IMAGE, 10), images(4)
    theta = drawn(model)
    first, offset, second, bias = torch.split(theta, [784 * 200, 200, 2000, 10])
    features = functional.relu(x.flatten(1) @ first.view(200, 784).T + offset)
    output, _ = model.forward(theta, torch.zeros(0), x, True)
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.logits, features @ second.view(10, 200).T + bias)


@pytest.mark.parametrize("shape", [(5,), (1, 4, 4), (3, 2, 2)])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_pullback_of_softmax_is_the_transposed_jacobian(
    shape: tuple[int, ...], rows: int
) -> None:
    model = softmax(shape, 3)
    assert model.pullback is not None
    theta, x = drawn(model).double(), images(rows, shape).double()
    draw = torch.Generator().manual_seed(9)
    cotangent = Output(*torch.randn(2, rows, 3, generator=draw, dtype=torch.float64))
    _, pull, *_ = vjp(lambda t: model.forward(t, torch.zeros(0), x, True)[0], theta)
    torch.testing.assert_close(model.pullback(theta, x, cotangent), pull(cotangent)[0])


@every_model
def test_the_initial_draw_is_a_function_of_the_generator(model: Model) -> None:
    assert torch.equal(drawn(model, 1), drawn(model, 1))
    assert not torch.equal(drawn(model, 1), drawn(model, 2))


@every_model
def test_drawing_does_not_disturb_the_global_generator(model: Model) -> None:
    before = torch.random.get_rng_state()
    drawn(model)
    assert torch.equal(before, torch.random.get_rng_state())


@every_model
def test_the_global_generator_does_not_disturb_the_draw(model: Model) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = drawn(model)
        torch.manual_seed(2)
        assert torch.equal(first, drawn(model))


@every_model
def test_the_initial_weights_are_uniform_within_the_usual_bound(model: Model) -> None:
    """Uniform within 1/sqrt(inputs), so a deviation of 1/sqrt(3 inputs)."""
    weights = drawn(model)[: 784 * 10]
    assert float(weights.abs().max()) <= 1 / math.sqrt(784)
    assert float(weights.std()) == pytest.approx(1 / math.sqrt(3 * 784), rel=0.03)


@every_model
def test_forward_is_differentiable_like_a_module(model: Model) -> None:
    theta = drawn(model).requires_grad_()
    output, _ = model.forward(theta, torch.zeros(0), images(3), True)
    (gradient,) = torch.autograd.grad(output.logits.sum(), theta)
    # The last entries of theta are the output's biases: each adds to every row.
    torch.testing.assert_close(gradient[-10:], torch.full((10,), 3.0))


def test_softmax_starts_like_a_linear_layer() -> None:
    with torch.random.fork_rng(devices=[]):
        linear = nn.utils.parameters_to_vector(nn.Linear(784, 10).parameters()).detach()
    ours = drawn(softmax(IMAGE, 10))
    assert float(ours.std()) == pytest.approx(float(linear.std()), rel=0.03)
