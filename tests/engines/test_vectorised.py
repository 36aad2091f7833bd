"""The fast engine's result does not depend on how the work is cut: to the bit."""

from __future__ import annotations

import pytest
import torch

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.local import Recipe
from ebbflow.core.types import Model
from ebbflow.engines import vectorised as module
from ebbflow.models import mlp, softmax
from tests.algorithms.toys import TOYS, proximal
from tests.engines.rounds import (
    CLASSES,
    MANY,
    MODELS,
    SHAPE,
    cohort,
    examples,
    lane,
    normed,
    same_bits,
    vectorised,
)

SOFTMAX = softmax(SHAPE, CLASSES)
FEDAVG = Algorithm("fedavg")
BLOCKS = [1, 2, 3, 7, 16, 64]
every_algorithm = pytest.mark.parametrize(
    "algorithm", [build() for build in ALGORITHMS.values()] + TOYS, ids=lambda a: a.name
)
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)


def window_of(monkeypatch: pytest.MonkeyPatch, model: Model, devices: int) -> None:
    """Let one lane hold the uploads of so many devices at once."""
    monkeypatch.setattr(module, "WINDOW_BYTES", 4 * model.layout.total * devices)


@every_model
@every_algorithm
def test_neither_block_nor_workers_show(model: Model, algorithm: Algorithm) -> None:
    who, at = cohort(MANY), lane(model, algorithm)
    whole = vectorised(model, [at], who, workers=1)[0]
    # A model that is trained device by device has blocks of one, whatever is asked for.
    blocks = BLOCKS if model.hints.vectorise else [3]
    cuts = [(block, 2) for block in blocks] + [(None, 3), (3, 1), (3, 3)]
    for block, workers in cuts:
        cut = vectorised(model, [at], who, block, workers)[0]
        assert same_bits(cut, whole), f"block {block}, workers {workers}"


@every_model
def test_blocks_do_not_show_in_a_projection(model: Model) -> None:
    who, at = cohort(MANY), lane(model, FEDAVG)
    ball = Recipe(0.9, radius=float(at.shared.theta.norm()))
    whole = vectorised(model, [at], who, recipe=ball)[0]
    for block in BLOCKS:
        assert same_bits(vectorised(model, [at], who, block, recipe=ball)[0], whole), block


@pytest.mark.parametrize(
    "model", [softmax((27,), 3), softmax((7,), 5), mlp((9,), 8, hidden=21)], ids=lambda m: m.name
)
def test_blocks_do_not_show_in_a_model_of_odd_sizes(model: Model) -> None:
    """Matrices that do not start on a cache line: the product may differ with the address."""
    _, inputs = model.layout.shapes[0]
    (classes,) = model.layout.shapes[-1]
    data, who, at = examples((inputs,), classes), cohort(MANY), lane(model, FEDAVG)
    whole = vectorised(model, [at], who, data=data)[0]
    for block in BLOCKS:
        assert same_bits(vectorised(model, [at], who, block, data=data)[0], whole), block


def test_blocks_do_not_show_in_batch_statistics() -> None:
    model = normed()
    who, at = cohort([tuple(max(2, n) for n in steps) for steps in MANY]), lane(model, FEDAVG)
    whole = vectorised(model, [at], who)[0]
    for block in BLOCKS:
        assert same_bits(vectorised(model, [at], who, block)[0], whole), block


@pytest.mark.parametrize("held", [16, 32, 48])
def test_windows_do_not_show(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    who, at = cohort(MANY * 3), lane(SOFTMAX, FEDAVG)
    whole = vectorised(SOFTMAX, [at], who)[0]
    window_of(monkeypatch, SOFTMAX, held)
    assert same_bits(vectorised(SOFTMAX, [at], who)[0], whole)


def test_lanes_do_not_show_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lanes hold half as many devices at once, and add up to the same bits."""
    who, lanes = cohort(MANY * 3), [lane(SOFTMAX, FEDAVG), lane(SOFTMAX, proximal(0.5))]
    window_of(monkeypatch, SOFTMAX, 64)
    together = vectorised(SOFTMAX, lanes, who)
    for at, trained in zip(lanes, together, strict=True):
        assert same_bits(trained, vectorised(SOFTMAX, [at], who)[0])


def test_neighbours_do_not_show_in_a_devices_state() -> None:
    algorithm, who = TOYS[-1], cohort(MANY)
    at = lane(SOFTMAX, algorithm)
    _, together = vectorised(SOFTMAX, [at], who)[0]
    for place in (0, 5, 36):
        alone = who._replace(
            devices=who.devices[place : place + 1],
            batches=who.batches[place : place + 1],
            samples=who.samples[place : place + 1],
        )
        for device, state in vectorised(SOFTMAX, [at], alone)[0][1].items():
            assert all(torch.equal(state[name], together[device][name]) for name in state)


def test_repeating_a_round_repeats_its_bits() -> None:
    who, at = cohort(MANY), lane(SOFTMAX, FEDAVG)
    first = vectorised(SOFTMAX, [at], who)[0]
    assert all(same_bits(vectorised(SOFTMAX, [at], who)[0], first) for _ in range(5))


def test_workers_do_not_change_the_callers_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        vectorised(SOFTMAX, [lane(SOFTMAX, FEDAVG)], cohort(MANY))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
