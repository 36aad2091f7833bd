"""The library against an implementation that has nothing in common with it but the papers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Population
from ebbflow.core.local import Cohort, Recipe
from ebbflow.core.types import Examples, Model, ModelState
from ebbflow.models import from_module, mlp, softmax
from tests.algorithms.plain import PLAIN, Device, float_buffers
from tests.engines.rounds import CLASSES, ENGINES, SHAPE, Federation, examples, visits

SAMPLES = 10 * 9 + 7 * (0 + 1 + 2 + 3 + 4 + 0 + 1 + 2 + 3)  # of the nine devices that visit
BUILDS: dict[str, Callable[[], Algorithm]] = {
    **ALGORITHMS,
    "scaffold-1": lambda: ALGORITHMS["scaffold"](option=1),
}
EXACT = 1e-10
ROUGH = 1e-5


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.all(x.flatten(1))
        return logits, logits


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 12)
        self.out = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.hidden(x.flatten(1)).relu()
        return self.out(features), features


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, stride=2)
        self.norm = nn.BatchNorm2d(2)
        self.out = nn.Linear(18, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.norm(self.conv(x)).relu().flatten(1)
        return self.out(features), features


MODELS: dict[str, tuple[Model, Callable[[], nn.Module]]] = {
    "softmax": (softmax(SHAPE, CLASSES), Regression),
    "mlp": (mlp(SHAPE, CLASSES, 12), Perceptron),
    "normed": (from_module(Normed, "normed"), Normed),
}


def devices_of(who: Cohort, data: Examples) -> list[Device]:
    return [
        Device(
            device,
            samples,
            [(data.x[torch.from_numpy(rows)], data.y[torch.from_numpy(rows)]) for rows in batches],
        )
        for device, batches, samples in zip(who.devices, who.batches, who.samples, strict=True)
    ]


def compare(
    name: str, kind: str, engine: str, momentum: float, dtype: torch.dtype, within: float
) -> None:
    model, build = MODELS[kind]
    start = ModelState(
        *(part.to(dtype) for part in model.initial(torch.Generator().manual_seed(1)))
    )
    data = Examples(examples().x.to(dtype), examples().y)
    module = build().to(dtype)
    nn.utils.vector_to_parameters(start.theta.clone(), module.parameters())
    plain = PLAIN[name](module, SAMPLES, momentum)
    run = ENGINES[engine](model, data, Recipe(momentum))
    ours = Federation(run, BUILDS[name](), start, Population(9, SAMPLES))
    for who, lr in zip(visits(), (0.1, 0.08, 0.05), strict=True):
        ours.round(who, lr)
        plain.round(devices_of(who, data), lr)
        torch.testing.assert_close(ours.model.theta, plain.w, rtol=0, atol=within)
        buffers = [buffer.flatten() for buffer in float_buffers(plain.module)]
        if buffers:
            torch.testing.assert_close(
                ours.model.buffers, torch.cat(buffers), rtol=within, atol=within
            )
    run.close()
    assert float((ours.model.theta - start.theta).abs().max()) > 100 * within


def test_there_is_a_plain_implementation_of_every_algorithm() -> None:
    assert PLAIN.keys() == BUILDS.keys()


def test_all_devices_of_the_three_rounds_are_counted() -> None:
    sizes = {d: n for who in visits() for d, n in zip(who.devices, who.samples, strict=True)}
    assert (len(sizes), sum(sizes.values())) == (9, SAMPLES)


def test_the_plain_implementations_are_told_apart() -> None:
    """Else agreeing with one of them would say little."""
    ends = {}
    for name, build in PLAIN.items():
        module = Regression().double()
        start = MODELS["softmax"][0].initial(torch.Generator().manual_seed(1)).theta.double()
        nn.utils.vector_to_parameters(start, module.parameters())
        plain = build(module, SAMPLES, 0.9)
        for who in visits():
            plain.round(devices_of(who, Examples(examples().x.double(), examples().y)), 0.1)
        ends[name] = plain.w
    for one, other in itertools.combinations(ends, 2):
        assert float((ends[one] - ends[other]).abs().max()) > 1e-4, (one, other)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", PLAIN)
def test_the_library_gives_the_numbers_of_a_plain_implementation(
    name: str, kind: str, momentum: float
) -> None:
    """Over three rounds with unequal devices and steps; in float64, so that nothing hides."""
    compare(name, kind, "sequential", momentum, torch.float64, EXACT)


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
@pytest.mark.parametrize("name", PLAIN)
def test_so_it_does_in_single_precision_on_the_fast_engine(name: str, kind: str) -> None:
    compare(name, kind, "vectorised", 0.9, torch.float32, ROUGH)
