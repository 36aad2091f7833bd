"""The small convolutional network, beside a plain module of torch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ebbflow.core import vector
from ebbflow.core.types import Model, ModelState
from ebbflow.models import cnn
from tests.models.samples import doubled, draws, images, pulled_back, random_cotangent, start

SHAPE, CLASSES = (3, 16, 8), 5


def plain(model: Model, state: ModelState) -> tuple[nn.Sequential, nn.Sequential]:
    """Return the same network as (features, head), written out, with the same weights."""

    def layer(inputs: int, width: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]

    body = nn.Sequential(
        *layer(3, 32),
        *layer(32, 32),
        nn.MaxPool2d(2),
        *layer(32, 64),
        *layer(64, 64),
        nn.MaxPool2d(2),
        *layer(64, 128),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * 2 * 1, 256),
        nn.ReLU(),
    ).double()
    head = nn.Sequential(nn.Dropout(0.4), nn.Linear(256, CLASSES)).double()
    tensors = vector.unflatten(state.theta, model.layout)
    tensors |= vector.unflatten(state.buffers, model.buffer_layout)
    convolutions, norms, linears = (
        [part for part in (*body, *head) if isinstance(part, kind)]
        for kind in (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
    )
    for name, parts in (("convs", convolutions), ("norms", norms)):
        for i, part in enumerate(parts):
            fill(part, f"{name}.{i}", tensors)
    fill(linears[0], "fc1", tensors)
    fill(linears[1], "fc2", tensors)
    return body, head


def fill(part: nn.Module, prefix: str, tensors: dict[str, Tensor]) -> None:
    own = {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if prefix in name}
    part.load_state_dict(own, strict=not isinstance(part, nn.BatchNorm2d))


def in_our_order(model: Model, body: nn.Sequential, head: nn.Sequential, what: str) -> Tensor:
    """Return the modules' gradients or buffers as our flat vector."""
    parts = [part for part in (*body, *head) if isinstance(part, nn.Conv2d)]
    norms = [part for part in (*body, *head) if isinstance(part, nn.BatchNorm2d)]
    linears = [part for part in (*body, *head) if isinstance(part, nn.Linear)]
    if what == "buffers":
        pairs = [(norm.running_mean, norm.running_var) for norm in norms]
        return torch.cat([b for pair in pairs for b in pair if b is not None])
    gradients = [p.grad for part in (*parts, *norms, *linears) for p in part.parameters()]
    return torch.cat([g.view(-1) for g in gradients if g is not None])


def test_training_is_that_of_the_plain_module(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = cnn(SHAPE, CLASSES), images(6, SHAPE).double()
    state, noise = doubled(start(model)), draws(model, 6)
    assert noise is not None
    output, gradient, buffers = pulled_back(model, state, x, noise)

    def dropped(z: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
        assert training
        assert not inplace
        assert p == 0.4
        return z * ((noise >= p) / (1 - p)).double()

    monkeypatch.setattr(nn.functional, "dropout", dropped)
    body, head = plain(model, state)
    features = body(x)
    logits = head(features)
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.logits, logits)
    cotangent = random_cotangent(output)
    ((cotangent.logits * logits).sum() + (cotangent.features * features).sum()).backward()
    torch.testing.assert_close(gradient, in_our_order(model, body, head, "gradients"))
    torch.testing.assert_close(buffers, in_our_order(model, body, head, "buffers"))


def test_evaluation_is_that_of_the_plain_module() -> None:
    model, x = cnn(SHAPE, CLASSES), images(6, SHAPE).double()
    state = doubled(start(model))
    moved = ModelState(state.theta, model.forward(*state, x, draws(model, 6), True)[1])
    output, still = model.forward(*moved, x, None, False)
    body, head = (part.eval() for part in plain(model, moved))
    torch.testing.assert_close(output.features, body(x))
    torch.testing.assert_close(output.logits, head(body(x)))
    assert torch.equal(still, moved.buffers)


def test_a_unit_is_kept_where_its_draw_is_at_least_the_rate() -> None:
    model, x = cnn(SHAPE, CLASSES), images(2, SHAPE)
    state = start(model)
    tensors = vector.unflatten(state.theta, model.layout)

    def logits(noise: float) -> tuple[Tensor, Tensor]:
        output, _ = model.forward(*state, x, torch.full((2, 256), noise), True)
        return output.logits, output.features

    kept, features = logits(0.4)
    weight, bias = tensors["fc2.weight"], tensors["fc2.bias"]
    torch.testing.assert_close(kept, features @ weight.T / 0.6 + bias)
    lost, same = logits(0.39)
    torch.testing.assert_close(lost, bias.expand(2, -1))
    assert torch.equal(features, same)  # what MOON compares is taken before the dropout


def test_training_without_draws_is_refused() -> None:
    model = cnn(SHAPE, CLASSES)
    with pytest.raises(ValueError, match=r"training needs noise \[B, 256\]"):
        model.forward(*start(model), images(2, SHAPE), None, True)


def test_without_dropout_no_draws_are_asked_for() -> None:
    model = cnn(SHAPE, CLASSES, dropout=0)
    assert model.noise is None
    assert cnn(SHAPE, CLASSES).noise == (256,)
    output, _ = model.forward(*start(model), images(2, SHAPE), None, True)
    weight, bias = (
        vector.unflatten(start(model).theta, model.layout)[f"fc2.{n}"] for n in ("weight", "bias")
    )
    torch.testing.assert_close(output.logits, output.features @ weight.T + bias)
