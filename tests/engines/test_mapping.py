"""Convolutions mapped over devices, as on a GPU: the same round as device by device."""

from __future__ import annotations

import pytest
import torch

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.local import Recipe, Trained
from ebbflow.core.types import Examples, Model
from ebbflow.engines import Vectorised
from ebbflow.models import cnn, from_module, mlp, resnet18, softmax
from tests.engines.rounds import assert_agree, cohort, conv_normed, lane, reference

SHAPE, CLASSES = (3, 8, 8), 5
SIZES = [(8, 8, 3), (5, 5), (8,), (8, 8, 3), (4, 2), (5, 5)]


def pictures(shape: tuple[int, ...] = SHAPE) -> Examples:
    draw = torch.Generator().manual_seed(4)
    x = torch.randn(400, *shape, generator=draw)
    return Examples(x, torch.randint(CLASSES, (400,), generator=draw))


def mapped(model: Model, algorithm: str, block: int, data: Examples) -> Trained:
    engine = Vectorised(model, data, Recipe(), block, 2, vectorise=True)
    try:
        return engine([lane(model, ALGORITHMS[algorithm](), lr=0.01)], cohort(SIZES))[0]
    finally:
        engine.close()


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "moon"])
@pytest.mark.parametrize("block", [1, 2, 4])
def test_a_convolutional_network_may_be_mapped(algorithm: str, block: int) -> None:
    """Batch statistics and running means of every device stay its own."""
    model, data = cnn(SHAPE, CLASSES), pictures()
    at = lane(model, ALGORITHMS[algorithm](), lr=0.01)
    expected = reference(model, [at], cohort(SIZES), data)[0]
    assert_agree(mapped(model, algorithm, block, data), expected, at)


def test_so_may_a_small_one_of_the_users() -> None:
    model, data = conv_normed(), pictures((1, 8, 8))
    at = lane(model, ALGORITHMS["fedavg"](), lr=0.01)
    expected = reference(model, [at], cohort(SIZES), data)[0]
    assert_agree(mapped(model, "fedavg", 3, data), expected, at)


def test_a_gpu_maps_small_convolutions_and_a_cpu_does_not() -> None:
    small, large = cnn(SHAPE, CLASSES), resnet18(SHAPE, CLASSES)
    assert not small.hints.maps(on_gpu=False)
    assert small.hints.maps(on_gpu=True)
    assert not large.hints.maps(on_gpu=True)
    for model in (mlp(SHAPE, CLASSES), softmax(SHAPE, CLASSES)):
        assert model.hints.maps(on_gpu=False)
        assert model.hints.maps(on_gpu=True)
    assert not from_module(lambda: torch.nn.Linear(3, 2), vectorise=False).hints.maps(on_gpu=True)
