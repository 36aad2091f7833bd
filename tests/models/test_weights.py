"""Weights from files: ours, those of published ResNets, and files that do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import ModelState, PastSession
from ebbflow.models import lacking_warnings, load_weights, mlp, resnet18, resnet34
from ebbflow.runs.history import Store
from tests.models.samples import start

IMAGE = (3, 32, 32)
HEAD = [
    "projection.0.weight",
    "projection.0.bias",
    "projection.2.weight",
    "projection.2.bias",
    "classifier.weight",
    "classifier.bias",
]
Tensors = dict[str, Tensor]


def published(depths: tuple[int, ...] = (2, 2, 2, 2)) -> Tensors:
    """Return a state dict with the names and shapes that torchvision and timm both use."""
    draw = torch.Generator().manual_seed(8)
    tensors: Tensors = {}

    def conv(name: str, outputs: int, inputs: int, size: int) -> None:
        tensors[f"{name}.weight"] = torch.randn(outputs, inputs, size, size, generator=draw)

    def norm(name: str, width: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            tensors[f"{name}.{part}"] = torch.rand(width, generator=draw)
        tensors[f"{name}.num_batches_tracked"] = torch.tensor(1234)

    conv("conv1", 64, 3, 7)
    norm("bn1", 64)
    inputs = 64
    for layer, (width, depth) in enumerate(zip((64, 128, 256, 512), depths, strict=True), start=1):
        for block in range(depth):
            at = f"layer{layer}.{block}"
            conv(f"{at}.conv1", width, inputs, 3)
            norm(f"{at}.bn1", width)
            conv(f"{at}.conv2", width, width, 3)
            norm(f"{at}.bn2", width)
            if inputs != width:
                conv(f"{at}.downsample.0", width, inputs, 1)
                norm(f"{at}.downsample.1", width)
            inputs = width
    tensors["fc.weight"], tensors["fc.bias"] = torch.zeros(1000, 512), torch.zeros(1000)
    return tensors


def saved(tensors: Tensors, folder: Path) -> Path:
    path = folder / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


def own_mlp() -> tuple[ModelState, Tensors]:
    model = mlp((6,), 3, hidden=4)
    state = start(model, 5)
    return state, {n: t.clone() for n, t in vector.unflatten(state.theta, model.layout).items()}


@pytest.mark.parametrize("prefix", ["", "backbone.", "module.", "model.", "module.backbone."])
def test_a_published_resnet_fits_and_the_head_stays_as_drawn(prefix: str, tmp_path: Path) -> None:
    model, tensors = resnet18(IMAGE, 10), published()
    drawn = start(model)
    before = drawn.theta.clone()
    path = saved({prefix + name: tensor for name, tensor in tensors.items()}, tmp_path)
    state, lacking = load_weights(model, drawn, path)
    assert lacking == HEAD
    actual = vector.unflatten(state.theta, model.layout)
    actual |= vector.unflatten(state.buffers, model.buffer_layout)
    first = vector.unflatten(drawn.theta, model.layout)
    for name, tensor in actual.items():
        assert torch.equal(tensor, first[name] if name in HEAD else tensors[name]), name
    assert torch.equal(drawn.theta, before)
    assert torch.equal(drawn.buffers, start(model).buffers)


def test_a_history_file_fits_and_lacks_nothing(tmp_path: Path) -> None:
    model = resnet18(IMAGE, 10)
    state = start(model, 3)
    state = ModelState(state.theta, torch.rand_like(state.buffers))
    store = Store(tmp_path, model.layout, model.buffer_layout)
    store.write(PastSession(2, state, signature=torch.ones_like(state.theta)))
    loaded, lacking = load_weights(model, start(model), tmp_path / "session-0002.safetensors")
    assert lacking == []
    assert torch.equal(loaded.theta, state.theta)
    assert torch.equal(loaded.buffers, state.buffers)


def test_half_precision_is_widened(tmp_path: Path) -> None:
    model = mlp((6,), 3, hidden=4)
    state, tensors = own_mlp()
    path = saved({name: tensor.half() for name, tensor in tensors.items()}, tmp_path)
    loaded, _ = load_weights(model, start(model), path)
    assert loaded.theta.dtype == torch.float32
    assert torch.equal(loaded.theta, state.theta.half().float())


def test_a_part_may_be_left_out(tmp_path: Path) -> None:
    state, tensors = own_mlp()
    model = mlp((6,), 3, hidden=4)
    body = {name: tensor for name, tensor in tensors.items() if name.startswith("hidden.")}
    loaded, lacking = load_weights(model, start(model), saved(body, tmp_path))
    assert lacking == ["head.weight", "head.bias"]
    assert torch.equal(loaded.theta[:28], state.theta[:28])
    assert torch.equal(loaded.theta[28:], start(model).theta[28:])


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


def changed(name: str, tensor: Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: tensor}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("hidden.bias"), r"holds only part of the model mlp and lacks hidden.bias:"),
        (
            changed("head.bias", torch.zeros(5)),
            r"holds head.bias with the shape \[5\] where the model has \[3\]:",
        ),
        (changed("tail.weight", torch.zeros(5)), r"holds tail.weight, which the model mlp has no"),
        (changed("module.head.bias", torch.zeros(3)), r"holds head.bias twice, once as "),
        (
            changed("head.bias", torch.full((3,), torch.nan)),
            r"holds numbers in head.bias that are not",
        ),
        (
            changed("head.bias", torch.zeros(3, dtype=torch.int64)),
            r"holds numbers in head.bias that",
        ),
        (
            lambda tensors: {f"my.{name}": tensor for name, tensor in tensors.items()},
            r"holds no tensor of the model mlp, whose first is hidden.weight, but my.head.bias, "
            r"my.head.weight, my.hidden.bias and 1 more: it belongs to another model",
        ),
        (lambda tensors: {}, r"holds no tensor of the model mlp, .*, but nothing: it belongs"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_a_sentence(
    change: Callable[[Tensors], Tensors], message: str, tmp_path: Path
) -> None:
    model = mlp((6,), 3, hidden=4)
    path = saved(change(own_mlp()[1]), tmp_path)
    with pytest.raises(
        EbbflowError, match=r"^model.weights = \".*weights.safetensors\" " + message
    ):
        load_weights(model, start(model), path)


def test_one_resnet_does_not_half_fit_another(tmp_path: Path) -> None:
    smaller, larger = resnet18(IMAGE, 10), resnet34(IMAGE, 10)
    path = saved(published((3, 4, 6, 3)), tmp_path)
    with pytest.raises(EbbflowError, match=r"holds layer1.2.bn1.bias, .* model resnet18 has no"):
        load_weights(smaller, start(smaller), path)
    path = saved(published(), tmp_path)
    with pytest.raises(EbbflowError, match=r"only part of the model resnet34 and lacks layer1.2"):
        load_weights(larger, start(larger), path)


def test_a_part_that_is_left_out_is_named(tmp_path: Path) -> None:
    model = resnet18(IMAGE, 10)
    path = saved(published(), tmp_path)
    _, lacking = load_weights(model, start(model), path)
    (text,) = lacking_warnings(model, path, lacking)
    assert re.search(
        r"lacks 6 of the 106 tensors of the model resnet18 \(projection.0.weight, "
        r"projection.0.bias, projection.2.weight and 3 more\): they start as in a new model;",
        text,
    )
    assert lacking_warnings(model, path, []) == []


def test_a_part_that_is_torn_is_refused_with_the_names_and_number_of_what_is_missing(
    tmp_path: Path,
) -> None:
    model = resnet18(IMAGE, 10)
    torn = {name: t for name, t in published().items() if not name.startswith("layer2.1.")}
    with pytest.raises(
        EbbflowError,
        match=r"lacks layer2.1.conv1.weight, layer2.1.bn1.weight, .* and 7 more: choose the model",
    ):
        load_weights(model, start(model), saved(torn, tmp_path))


def test_batch_norm_weights_do_not_pass_for_group_norm(tmp_path: Path) -> None:
    model = resnet18(IMAGE, 10, norm="group")
    with pytest.raises(EbbflowError, match=r"holds bn1.running_mean, .* has no place for"):
        load_weights(model, start(model), saved(published(), tmp_path))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    model = mlp((6,), 3)
    with pytest.raises(EbbflowError, match=r"is no file: name a safetensors file"):
        load_weights(model, start(model), tmp_path / "nowhere.safetensors")
    with pytest.raises(EbbflowError, match=r"is no file"):
        load_weights(model, start(model), tmp_path)
    other = tmp_path / "weights.pth"
    other.write_bytes(b"PK\x03\x04 something else altogether")
    with pytest.raises(EbbflowError, match=r"cannot be read as safetensors .*save_file"):
        load_weights(model, start(model), other)
