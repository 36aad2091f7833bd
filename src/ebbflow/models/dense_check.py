"""Compares a dense network with the module that it was read from, on a few random rows.

torch.fx does not see everything: not where gradients are switched off, nor where precision is
lowered, and a module may ask what kind of object its input is. So outputs, buffers and gradients
are compared, at random weights: those of a fresh module may be zero, and hide what a layer does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core import dense
from ebbflow.core.types import (
    DenseNetwork,
    Differentiate,
    Forward,
    Layout,
    Linear,
    ModelState,
    Normalised,
    Output,
)

_ROWS = (5, 8)  # of the mini-batches: no number of inputs is both
_SEED = 0


class ModulePasses(NamedTuple):
    """How a module computes its outputs and its gradient, and where its parameters lie."""

    layout: Layout
    forward: Forward
    gradient: Differentiate


def computes(network: DenseNetwork, passes: ModulePasses, like: ModelState, draws: int) -> bool:
    """Whether a network computes what a module does.

    The module's models are as long as ``like``, and each sample has so many ``draws``.
    """
    draw = torch.Generator().manual_seed(_SEED)
    try:
        return all(_agree(network, passes, _drawn(network, like, n, draws, draw)) for n in _ROWS)
    except Exception:  # of a module that wants samples of another shape: it says so in a run
        return False


class _Case(NamedTuple):
    """A model and a mini-batch."""

    theta: Tensor
    buffers: Tensor
    x: Tensor
    noise: Tensor | None

    def exact(self) -> _Case:
        """Return the same numbers in double precision."""
        noise = None if self.noise is None else self.noise.double()
        return _Case(self.theta.double(), self.buffers.double(), self.x.double(), noise)


def _drawn(
    network: DenseNetwork, like: ModelState, rows: int, draws: int, draw: torch.Generator
) -> _Case:
    """Return a mini-batch, and weights with which neither values nor slopes vanish or explode."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=like.theta.dtype)

    theta, buffers = normal(len(like.theta)), normal(len(like.buffers))
    for stage in network.stages:
        if isinstance(stage, Linear):
            theta[stage.weight] /= math.sqrt(stage.inputs)
        elif isinstance(stage, Normalised):
            buffers[stage.variance] = 0.5 + buffers[stage.variance].abs()
    inputs = next(stage.inputs for stage in network.stages if isinstance(stage, Linear))
    noise = torch.rand(rows, draws, generator=draw, dtype=theta.dtype) if draws else None
    return _Case(theta, buffers, normal(rows, inputs), noise)


def _agree(network: DenseNetwork, passes: ModulePasses, case: _Case) -> bool:
    # Outputs in the module's own type, since it may lower that one alone; the gradient in the type
    # in which rounding hides least.
    outputs = all(_same_outputs(network, passes.forward, case, mode) for mode in (True, False))
    return outputs and _same_gradient(network, passes, case.exact())


def _same_outputs(network: DenseNetwork, forward: Forward, case: _Case, train: bool) -> bool:
    theta, buffers, x, noise = case
    given = noise if train else None
    wanted, after = forward(theta, buffers, x, given, train)
    own, layers = buffers.clone(), dense.layer_views(network, theta)
    found = dense.forward(network, layers, x, given, own, train=train).output
    return all(_near(*pair, 1e-4) for pair in zip((*found, own), (*wanted, after), strict=True))


def _same_gradient(network: DenseNetwork, passes: ModulePasses, case: _Case) -> bool:
    theta, buffers, x, noise = case
    draw = torch.Generator().manual_seed(_SEED)
    layers, found = dense.layer_views(network, theta), torch.full_like(theta, math.nan)
    passed = dense.forward(network, layers, x, noise, buffers.clone())
    slopes = Output(*(torch.randn(part.shape, generator=draw).to(part) for part in passed.output))
    places = dense.layer_views(network, found)
    dense.add_gradient(network, layers, passed, dense.OutputSlopes(*slopes), places, keep=0.0)
    wanted, _ = passes.gradient(theta, buffers, x, noise, lambda output: slopes)
    # Each parameter by itself: the slopes of one layer may be far smaller than those of another.
    rounding = 1e-12 * float(wanted.abs().max())
    parts = passes.layout.slices().values()
    return all(_near(found[part], wanted[part], 1e-6, rounding) for part in parts)


def _near(found: Tensor, wanted: Tensor, within: float, rounding: float = 0.0) -> bool:
    """Whether tensors agree, relative to the largest entry, or differ by no more than rounding."""
    if found.shape != wanted.shape or not wanted.numel():
        return found.shape == wanted.shape
    bound = within * float(wanted.abs().max()) + rounding
    return float((found - wanted).abs().max()) <= bound
