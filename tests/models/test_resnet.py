"""ResNets, beside the same written with functional calls on the tensors of their usual names."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.core import vector
from ebbflow.core.types import Model, ModelState, Output
from ebbflow.models import MODELS, resnet18
from ebbflow.models.resnet import _Conv3x3
from tests.models.samples import doubled, images, pulled_back, random_cotangent, start

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
SHAPE, CLASSES = (3, 16, 24), 7


def named(model: Model, state: ModelState) -> dict[str, Tensor]:
    theta = vector.unflatten(state.theta, model.layout)
    buffers = vector.unflatten(state.buffers, model.buffer_layout)
    return theta | {name: buffer.clone() for name, buffer in buffers.items()}


def normalised(x: Tensor, t: dict[str, Tensor], name: str, train: bool) -> Tensor:
    weight, bias = t[f"{name}.weight"], t[f"{name}.bias"]
    if f"{name}.running_mean" not in t:
        return functional.group_norm(x, 32, weight, bias)
    mean, var = t[f"{name}.running_mean"], t[f"{name}.running_var"]
    return functional.batch_norm(x, mean, var, weight, bias, training=train)


def reference(t: dict[str, Tensor], x: Tensor, depths: tuple[int, ...], train: bool) -> Output:
    """Return what a ResNet gives; running means and variances in ``t`` are updated in place."""
    x = functional.conv2d(x, t["conv1.weight"], stride=2, padding=3)
    x = functional.max_pool2d(normalised(x, t, "bn1", train).relu(), 3, stride=2, padding=1)
    for layer, depth in enumerate(depths, start=1):
        for block in range(depth):
            at = f"layer{layer}.{block}"
            stride = 2 if layer > 1 and block == 0 else 1
            inner = functional.conv2d(x, t[f"{at}.conv1.weight"], stride=stride, padding=1)
            inner = normalised(inner, t, f"{at}.bn1", train).relu()
            inner = functional.conv2d(inner, t[f"{at}.conv2.weight"], padding=1)
            inner = normalised(inner, t, f"{at}.bn2", train)
            if stride == 2:
                x = functional.conv2d(x, t[f"{at}.downsample.0.weight"], stride=2)
                x = normalised(x, t, f"{at}.downsample.1", train)
            x = (x + inner).relu()
    x = functional.adaptive_avg_pool2d(x, 1).flatten(1)
    x = functional.linear(x, t["projection.0.weight"], t["projection.0.bias"]).relu()
    z = functional.linear(x, t["projection.2.weight"], t["projection.2.bias"])
    return Output(functional.linear(z, t["classifier.weight"], t["classifier.bias"]), z)


@pytest.mark.parametrize(
    ("shape", "norm"),
    [(SHAPE, "batch"), (SHAPE, "group"), ((3, 32, 32), "batch"), ((1, 64, 40), "batch")],
)
def test_training_is_that_of_the_usual_network(shape: tuple[int, ...], norm: str) -> None:
    """The last layers see images of 1x1, 1x2, 2x2 or 2x1 pixels, which are trained otherwise."""
    model, x = resnet18(shape, CLASSES, norm=norm), images(3, shape).double()
    state = doubled(start(model))
    output, gradient, buffers = pulled_back(model, state, x, None)
    theta = state.theta.requires_grad_()
    tensors = named(model, ModelState(theta, state.buffers))
    expected = reference(tensors, x, DEPTHS["resnet18"], True)
    torch.testing.assert_close(output, expected)
    cotangent = random_cotangent(output)
    loss = (cotangent.logits * expected.logits).sum()
    loss = loss + (cotangent.features * expected.features).sum()
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, theta)[0])
    torch.testing.assert_close(buffers, vector.flatten(tensors, model.buffer_layout).to(buffers))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("kind", "channels", "norm"),
    [("resnet18", 3, "batch"), ("resnet34", 1, "batch"), ("resnet18", 1, "group")],
)
def test_outputs_are_those_of_the_usual_network(
    kind: str, channels: int, norm: str, train: bool
) -> None:
    model = MODELS[kind]((channels, 16, 24), CLASSES, norm=norm)
    x, (theta, ones) = images(3, (channels, 16, 24)).double(), doubled(start(model))
    state = ModelState(theta, ones * torch.linspace(0.5, 1.5, len(ones), dtype=torch.float64))
    with torch.no_grad():
        output, buffers = model.forward(*state, x, None, train)
        tensors = named(model, state)
        torch.testing.assert_close(output, reference(tensors, x, DEPTHS[kind], train))
    torch.testing.assert_close(buffers, vector.flatten(tensors, model.buffer_layout).to(buffers))
    assert train or torch.equal(buffers, state.buffers)


def test_group_norm_leaves_neither_buffers_nor_batch_statistics() -> None:
    model, x = resnet18(SHAPE, 10, norm="group"), images(4, SHAPE)
    assert model.buffer_layout.names == ()
    assert not model.batch_statistics
    assert not model.hints.vectorise
    assert model.layout == resnet18(SHAPE, 10).layout
    state = start(model)
    together = model.forward(*state, x, None, True)[0].logits
    alone = model.forward(*state, x[:1], None, True)[0].logits
    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)


def test_convolutions_start_as_kaiming_normal_and_norms_as_ones_and_zeros() -> None:
    model = resnet18(SHAPE, 10)
    state = start(model)
    tensors = named(model, state)
    for name, tensor in tensors.items():
        if tensor.ndim == 4:
            fan_out = tensor.shape[0] * tensor.shape[2] * tensor.shape[3]
            assert float(tensor.std()) == pytest.approx(math.sqrt(2 / fan_out), rel=0.05), name
        elif "bn" in name or "downsample.1" in name:
            value = 1.0 if name.endswith(("weight", "running_var")) else 0.0
            assert (tensor == value).all(), name
    assert float(tensors["projection.0.weight"].abs().max()) <= 1 / math.sqrt(512)


@pytest.mark.parametrize(
    ("height", "width", "stride"),
    [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (4, 4, 2), (4, 1, 2)],
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_of_a_small_image_is_a_product(
    height: int, width: int, stride: int, layout: torch.memory_format
) -> None:
    conv = _Conv3x3(5, 4, stride).double()
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, height, width, generator=draw, dtype=torch.float64)
    x = x.contiguous(memory_format=layout).requires_grad_()
    expected = functional.conv2d(x, conv.weight, None, stride, 1)
    slope = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    theirs = torch.autograd.grad(expected, (x, conv.weight), slope)
    actual = conv(x)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(torch.autograd.grad(actual, (x, conv.weight), slope), theirs)
    assert torch.equal(conv.eval()(x), expected)
