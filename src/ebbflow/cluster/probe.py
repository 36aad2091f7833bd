"""What the native kernels compute on this machine, told by a digest.

They are compiled where ebbflow is installed, and call the C library of the machine on which they
run: another compiler, other options or another library may round differently, and no version tells.
So they are given a little of all kinds of work, and what comes of it is compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ebbflow.algorithms.moon import moon
from ebbflow.core.algorithm import Affine, Algorithm, Broadcast
from ebbflow.core.local import Lane, Recipe
from ebbflow.core.types import (
    DenseNetwork,
    DenseStage,
    Examples,
    Indices,
    Linear,
    Masked,
    ModelState,
    Normalised,
    State,
)
from ebbflow.engines import native
from ebbflow.engines.native import dense
from ebbflow.models.softmax import softmax
from ebbflow.starts.continuous import distilled

SAMPLES = 40
STEPS = (19, 8, 37)
"""Samples of each step: whole tiles and panels of the kernels, and parts of them."""
FEATURES = 21
"""Of softmax regression: no whole number of vectors."""
INPUTS = 300
"""Of the dense network: more than its kernel adds up at a time, and no whole number of vectors."""


def results() -> str:
    """Return a digest of what the kernels compute here, or why there are none."""
    if missing := native.why_missing() or dense.why_missing():
        return f"nothing ({missing})"
    digest = hashlib.blake2b(digest_size=4)
    by_softmax = (*_softmax_results(9, Recipe(0.9)), *_softmax_results(8, Recipe(radius=0.5)))
    for tensor in (*by_softmax, *_dense_results()):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _numbers(count: int, seed: int) -> Tensor:
    """Return numbers between -1/2 and 1/2 that are the same everywhere: they need no rounding."""
    return ((torch.arange(count) + 101 * seed) * 7919 % 1009 - 504) / 1024


def _labels(classes: int) -> Tensor:
    return torch.arange(SAMPLES) * 5 % classes


def _batches() -> list[Indices]:
    draws = np.arange(sum(STEPS)) * 17 % SAMPLES
    return np.split(draws, np.cumsum(STEPS)[:-1])


def _softmax_results(classes: int, recipe: Recipe) -> list[Tensor]:
    """Return what two devices learn in lanes of all kinds."""
    model = softmax((FEATURES,), classes)
    count, none = model.layout.total, torch.zeros(0)
    theta, shift, before, teacher = (_numbers(count, seed) for seed in range(4))
    compared = moon(mu=2.0, tau=0.5)
    algorithms = [
        Algorithm("plain"),
        Algorithm("drawn", direction=Affine(0.1, lambda shared, own: shift)),
        compared,
        distilled(compared, ModelState(teacher, none), (0, 2, 3), 0.5, 2.0, "mixed"),
    ]
    shared = Broadcast(theta, none, {})
    lanes = [Lane(algorithm, shared, 0.1, {}) for algorithm in algorithms]
    seen: State = {"theta": before, "buffers": none, "seen": torch.ones(())}
    batches = [_batches(), _batches()[::-1]]
    x = _numbers(SAMPLES * FEATURES, 4).view(SAMPLES, FEATURES)
    kernel = native.Kernel(model, Examples(x, _labels(classes)), recipe)
    return kernel.train(lanes, [[seen] * len(batches)] * len(lanes), batches)


def _dense_results() -> Iterator[Tensor]:
    """Yield what a network with all kinds of layers learns, its scores, and a single pass."""
    network, parameters, units = _network()
    layers = dense.kernel_layers(network)
    assert layers is not None
    kernel = dense.DenseKernel(layers, draws=1)
    x, batches = _numbers(SAMPLES * INPUTS, 5).view(SAMPLES, INPUTS), _batches()
    theta, shift = _numbers(parameters, 6) / 4, _numbers(parameters, 7) / 64
    noise = (_numbers(sum(STEPS), 8) + 0.5).view(-1, 1)
    motions = [
        dense.Motion(
            theta, theta, of_shift, torch.empty(parameters), torch.empty(parameters), 0.0, 0.1,
            pull, torch.ones(2 * units),
        )
        for of_shift, pull in ((None, 0.0), (shift, 0.1))
    ]  # fmt: skip
    kernel.train(x, _labels(kernel.classes), batches, noise, motions, 0.9)
    for motion in motions:
        assert motion.out is not None and motion.buffers is not None
        yield from (motion.out, motion.velocity, motion.buffers)
    yield kernel.scores(theta, torch.ones(2 * units), x)
    laid_out, gradient = kernel.laid_out(x, batches[0]), torch.empty(parameters)
    noise = noise[: STEPS[0]]
    values, scores, features = kernel.forward(theta, torch.ones(2 * units), laid_out, noise)
    asked = dense.Motion(theta, theta, None, gradient, None, 0.0, 0.0, 0.0)
    kernel.backward(laid_out, noise, values, scores, features, asked)
    yield from (scores, features, gradient)


def _network() -> tuple[DenseNetwork, int, int]:
    """Return a network, its number of parameters, and how many units it normalises."""
    end = 0

    def place(count: int) -> slice:
        nonlocal end
        end += count
        return slice(end - count, end)

    def linear(outputs: int, inputs: int) -> Linear:
        return Linear(place(outputs * inputs), place(outputs), outputs, inputs)

    units = 29
    means, variances = slice(0, units), slice(units, 2 * units)
    stages: tuple[DenseStage, ...] = (
        linear(units, INPUTS),
        Normalised(place(units), place(units), means, variances, units, 1e-5, 0.1),
        "relu",
        Masked(0.4, 0, lambda noise, units: noise),  # the kernel has factors of its own
        linear(17, units),
        "tanh",
        linear(7, 17),
    )
    return DenseNetwork(stages, features=6, flattens=False), end, units
