"""Dropout by name: the right share is dropped, independently, and alike on every engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ebbflow.core.types import Dataset, Examples, Model
from ebbflow.experiment import run
from ebbflow.models import MODELS, from_module, register_model
from ebbflow.models.dropout import kept_units, with_named_dropout
from tests.configs import with_settings


@given(st.floats(0.05, 0.95), st.integers(0, 9), st.integers(0, 10**6))
def test_so_many_units_are_dropped(p: float, place: int, seed: int) -> None:
    noise = torch.rand(100, generator=torch.Generator().manual_seed(seed))
    kept = kept_units(noise, 400, p, place).double()
    error = (p * (1 - p) / 40_000) ** 0.5
    assert abs(float(kept.mean()) - (1 - p)) < 5 * error
    # Nor does a sample, or a unit, have more than its share.
    assert float((kept.mean(0) - (1 - p)).abs().max()) < 6 * (p * (1 - p) / 100) ** 0.5


def test_neighbouring_units_samples_and_layers_are_independent() -> None:
    noise = torch.rand(2000, generator=torch.Generator().manual_seed(1))
    one, other = (kept_units(noise, 50, 0.5, place).double() - 0.5 for place in (0, 1))
    for a, b in (
        (one[:, 1:], one[:, :-1]),
        (one[1:], one[:-1]),
        (one, other),
    ):
        assert abs(float((a * b).mean()) * 4) < 5 / a.numel() ** 0.5


def dropout_net(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), layer(), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, 3)
        )

    return build


@pytest.mark.parametrize("layer", [lambda: nn.Dropout(0.4), lambda: nn.Dropout2d(0.4)])
def test_a_network_with_dropout_is_scaled_and_silent_outside_training(
    layer: Callable[[], nn.Module],
) -> None:
    model = from_module(dropout_net(layer))
    assert model.noise == (2,)
    state = model.initial(torch.Generator().manual_seed(0))
    x = torch.rand(500, 1, 8, 8)
    still = model.forward(*state, x, None, False)[0].logits
    assert torch.equal(still, model.forward(*state, x, None, False)[0].logits)
    noise = torch.rand(500, 2)
    moved = model.forward(*state, x, noise, True)[0].logits
    assert torch.equal(moved, model.forward(*state, x, noise, True)[0].logits)
    assert not torch.equal(moved, model.forward(*state, x, torch.rand(500, 2), True)[0].logits)


def test_whole_channels_are_dropped_together() -> None:
    layer, draws, count = with_named_dropout(nn.Sequential(nn.Dropout2d(0.5)))
    assert draws is not None and count == 1
    draws.noise = torch.rand(20, 1)
    out = layer.train()(torch.ones(20, 6, 4, 4))
    for channel in out.flatten(2).flatten(0, 1):
        assert set(channel.tolist()) in ({0.0}, {2.0})
    assert set(out.flatten().tolist()) == {0.0, 2.0}


class Milder(nn.Dropout):
    """Another name for a rate."""

    def __init__(self) -> None:
        super().__init__(0.2)


class Halving(nn.Dropout):
    """Halves what is not dropped."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


def test_a_subclass_is_replaced_if_it_drops_as_the_layer_does() -> None:
    assert with_named_dropout(nn.Sequential(Milder(), Halving()))[2] == 1
    model = from_module(lambda: nn.Sequential(nn.Linear(6, 5), Milder(), nn.Linear(5, 3)))
    assert model.noise == (1,)
    assert model.hints.dense is not None
    model = from_module(lambda: nn.Sequential(nn.Linear(6, 5), Halving(), nn.Linear(5, 3)))
    assert model.noise is None
    assert model.hints.dense is None
    assert model.hints.own_draws


def test_a_layer_in_two_places_is_one_layer() -> None:
    shared = nn.Dropout(0.5)
    module, _, count = with_named_dropout(nn.Sequential(shared, nn.ReLU(), shared))
    assert count == 1
    assert module[0] is module[2]  # type: ignore[index]


def test_nothing_and_everything() -> None:
    for p, factor in ((0.0, 1.0), (1.0, 0.0)):
        layer, draws, _ = with_named_dropout(nn.Sequential(nn.Dropout(p)))
        assert draws is not None
        draws.noise = torch.rand(3, 1)
        assert torch.equal(layer.train()(torch.ones(3, 5)), factor * torch.ones(3, 5))


class Normed(nn.Module):
    """BatchNorm and Dropout, as users have them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return self.head(features), features


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))


@pytest.mark.parametrize("build", [plain, Normed])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "moon"])
def test_every_engine_drops_the_same_units(build: Callable[[], nn.Module], algorithm: str) -> None:
    def dropping(shape: tuple[int, ...], classes: int) -> Model:
        return from_module(build, "dropping")

    draw = np.random.default_rng(1)
    x = torch.from_numpy(draw.normal(size=(200, 6)).astype(np.float32))
    data = Dataset("mine", Examples(x, x[:, :3].argmax(1)), Examples(x, x[:, :3].argmax(1)), 3)
    register_model("dropping", dropping)
    try:
        found = []
        for kind, block in (("sequential", "1"), ("vectorised", "1"), ("vectorised", "3")):
            settings = ("dataset=mine", "model.kind=dropping", "seeds=[1]", "rounds=3")
            more = (f"engine.kind={kind}", f"engine.block={block}", f"algorithm={algorithm}")
            config = with_settings(
                *settings, *more, "sessions=4", "partition.devices=5", "engine.workers=1"
            )
            found.append(run(config, dataset=data).rounds)
    finally:
        MODELS.unregister("dropping")
    for one, *others in zip(*found, strict=True):
        for other in others:
            assert one.loss == pytest.approx(other.loss, rel=2e-4)
