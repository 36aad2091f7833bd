"""The models of the registry: sizes, draws, parameters, what softmax and mlp compute."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.nn import functional

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Model, Output
from ebbflow.models import MODELS, mlp, softmax
from tests.models.samples import IMAGE, TINY, draws, images, inputs, pulled_back, start, tiny

every_model = pytest.mark.parametrize("kind", MODELS)
linear_first = pytest.mark.parametrize("kind", ["softmax", "mlp"])


def drawn(model: Model, seed: int = 0) -> Tensor:
    return start(model, seed).theta


@pytest.mark.parametrize(
    ("kind", "shape", "classes", "parameters", "buffers"),
    [
        ("softmax", (1, 28, 28), 10, 7_850, 0),
        ("mlp", (1, 28, 28), 10, 159_010, 0),
        ("cnn", (3, 32, 32), 10, 667_178, 640),
        ("resnet18", (3, 32, 32), 10, 11_573_066, 9_600),
        ("resnet18", (3, 32, 32), 100, 11_596_196, 9_600),
        ("resnet34", (3, 64, 64), 200, 21_730_056, 17_024),
        ("embedding", (64,), 4, 9_157_804, 0),
    ],
)
def test_a_model_has_the_papers_number_of_parameters(
    kind: str, shape: tuple[int, ...], classes: int, parameters: int, buffers: int
) -> None:
    model = MODELS[kind](shape, classes)
    state = start(model)
    assert model.layout.total == parameters
    assert state.theta.shape == (parameters,)
    assert model.buffer_layout.total == buffers
    assert state.buffers.shape == (buffers,)


@every_model
def test_the_initial_draw_is_a_function_of_the_generator(kind: str) -> None:
    model = tiny(kind)
    first = drawn(model, 1)
    assert torch.equal(first, drawn(model, 1))
    assert not torch.equal(first, drawn(model, 2))


@every_model
def test_drawing_does_not_disturb_the_global_generator(kind: str) -> None:
    before = torch.random.get_rng_state()
    drawn(tiny(kind))
    assert torch.equal(before, torch.random.get_rng_state())


@every_model
def test_the_global_generator_does_not_disturb_the_draw(kind: str) -> None:
    model = tiny(kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = drawn(model)
        torch.manual_seed(2)
        assert torch.equal(first, drawn(model))


@every_model
def test_training_draws_nothing_itself(kind: str) -> None:
    model, x = tiny(kind), inputs(kind, 4)
    state, noise = start(model), draws(model, 4)
    assert not model.hints.own_draws
    before = torch.random.get_rng_state()
    first = model.forward(state.theta, state.buffers, x, noise, True)
    second = model.forward(state.theta, state.buffers, x, noise, True)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first[0].logits, second[0].logits)
    assert torch.equal(first[1], second[1])


@every_model
def test_outputs_are_a_row_of_scores_and_a_row_of_features_per_sample(kind: str) -> None:
    model, x = tiny(kind), inputs(kind, 4)
    output, buffers = model.forward(*start(model), x, None, False)
    assert output.logits.shape == (4, TINY[kind][1])
    assert output.features.ndim == 2
    assert len(output.features) == 4
    assert buffers.shape == (model.buffer_layout.total,)


@every_model
def test_forward_is_differentiable_like_a_module(kind: str) -> None:
    model, x = tiny(kind), inputs(kind, 4)
    state = start(model)
    theta = state.theta.requires_grad_()
    output, _ = model.forward(theta, state.buffers, x, draws(model, 4), True)
    (gradient,) = torch.autograd.grad(output.logits.sum(), theta)
    # The last entries of theta are the output's biases: each adds to every row.
    classes = TINY[kind][1]
    torch.testing.assert_close(gradient[-classes:], torch.full((classes,), 4.0))
    assert gradient.isfinite().all()


@every_model
def test_logits_and_features_both_pull_on_theta(kind: str) -> None:
    model = tiny(kind)
    _, gradient, _ = pulled_back(model, start(model), inputs(kind, 4), draws(model, 4))
    moved = [gradient[part].abs().max() > 0 for part in model.layout.slices().values()]
    assert all(moved)


def test_only_softmax_and_mlp_are_mapped_over_devices() -> None:
    assert [kind for kind in MODELS if tiny(kind).hints.vectorise] == ["softmax", "mlp"]


def test_batch_statistics_are_those_of_the_models_with_batch_norm() -> None:
    with_statistics = [kind for kind in MODELS if tiny(kind).batch_statistics]
    assert with_statistics == ["cnn", "resnet18", "resnet34"]


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (
            "mlp",
            {"hidden": 0},
            r"parameters.mlp.hidden = 0 is no size: give a whole number from 1 up",
        ),
        ("mlp", {"hidden": 2.5}, r"parameters.mlp.hidden = 2.5 is no size"),
        ("mlp", {"hidden": True}, r"parameters.mlp.hidden = True is no size"),
        ("embedding", {"vocabulary": -1}, r"parameters.embedding.vocabulary = -1 is no size"),
        ("cnn", {"dropout": 1.0}, r"parameters.cnn.dropout = 1.0 is no share .* from 0 to below 1"),
        ("cnn", {"dropout": "much"}, r"parameters.cnn.dropout = 'much' is no share"),
        (
            "resnet18",
            {"norm": "layer"},
            r"parameters.resnet18.norm = 'layer' .*: known are batch, group",
        ),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_in_a_sentence(
    kind: str, parameters: dict[str, Any], message: str
) -> None:
    shape, classes, _ = TINY[kind]
    with pytest.raises(EbbflowError, match=message):
        MODELS[kind](shape, classes, **parameters)


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("cnn", (784,), r"\"cnn\" needs images .* has the shape \[784\]"),
        ("cnn", (3, 28, 32), r"divisible by 8, but they are 28 and 32"),
        ("resnet34", (64,), r"\"resnet34\" needs images"),
        ("embedding", (1, 28, 28), r"\"embedding\" needs texts .* the shape \[1, 28, 28\]"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_in_a_sentence(
    kind: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(EbbflowError, match=message):
        MODELS[kind](shape, 10)


# --- softmax and mlp -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shape", "parameters"),
    [
        ("softmax", (50_000,), {}),
        ("mlp", (1, 8, 8), {"hidden": 10**9}),
        ("embedding", (64,), {"vocabulary": 10**6, "width": 10**6}),
    ],
)
def test_a_model_of_any_size_is_refused_before_it_is_built(
    kind: str, shape: tuple[int, ...], parameters: dict[str, int]
) -> None:
    with pytest.raises(EbbflowError, match=f'model.kind = "{kind}" would have .* parameters'):
        MODELS[kind].build(parameters, shape, 100_000)


def test_softmax_is_an_affine_map_of_the_pixels() -> None:
    model, x = softmax(IMAGE, 10), images(4)
    theta = drawn(model)
    output, _ = model.forward(theta, torch.zeros(0), x, None, True)
    expected = x.flatten(1) @ theta[:7840].view(10, 784).T + theta[7840:]
    torch.testing.assert_close(output.logits, expected)


@pytest.mark.parametrize("hidden", [200, 30])
def test_mlp_is_a_map_through_rectified_units(hidden: int) -> None:
    model, x = mlp(IMAGE, 10, hidden=hidden), images(4)
    theta = drawn(model)
    first, offset, second, bias = torch.split(theta, [784 * hidden, hidden, 10 * hidden, 10])
    features = functional.relu(x.flatten(1) @ first.view(hidden, 784).T + offset)
    output, _ = model.forward(theta, torch.zeros(0), x, None, True)
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.logits, features @ second.view(10, hidden).T + bias)


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
    _, pull, *_ = vjp(lambda t: model.forward(t, torch.zeros(0), x, None, True)[0], theta)
    torch.testing.assert_close(model.pullback(theta, x, cotangent), pull(cotangent)[0])


@linear_first
def test_the_initial_weights_are_uniform_within_the_usual_bound(kind: str) -> None:
    """Uniform within 1/sqrt(inputs), so a deviation of 1/sqrt(3 inputs)."""
    weights = drawn(tiny(kind))[: 784 * 10]
    assert float(weights.abs().max()) <= 1 / math.sqrt(784)
    assert float(weights.std()) == pytest.approx(1 / math.sqrt(3 * 784), rel=0.03)


def test_softmax_starts_like_a_linear_layer() -> None:
    with torch.random.fork_rng(devices=[]):
        linear = nn.utils.parameters_to_vector(nn.Linear(784, 10).parameters()).detach()
    ours = drawn(softmax(IMAGE, 10))
    assert float(ours.std()) == pytest.approx(float(linear.std()), rel=0.03)
