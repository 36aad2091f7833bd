"""Forward and backward passes of a dense network, in closed form: no graph is built.

What a pass costs is its matrix products. The gradient in a weight is written, or added to what is
there, by the product itself, and there is no gradient for the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core.types import Buffers, DenseNetwork, Linear, Masked, Normalised, Output, Theta


class LayerViews(NamedTuple):
    """The weight and the bias of one layer as views of a vector like theta, if it has them."""

    weight: Tensor | None
    bias: Tensor | None


class BatchMoments(NamedTuple):
    """The means of units over a mini-batch, and one by their standard deviations."""

    mean: Tensor
    scale: Tensor


class Passed(NamedTuple):
    """A forward pass: the inputs and what each stage made of them, and the outputs.

    Masks and moments are those of the stages that have them.
    """

    values: list[Tensor]
    masks: dict[int, Tensor]
    moments: dict[int, BatchMoments]
    output: Output


class OutputSlopes(NamedTuple):
    """The loss's derivative in the logits, and in the features if it depends on them."""

    logits: Tensor
    features: Tensor | None = None


def layer_views(network: DenseNetwork, vector: Theta) -> list[LayerViews]:
    """Return the parts of a vector of the layers that have parameters, in order."""
    return [
        LayerViews(
            None if stage.weight is None else vector[stage.weight].view(_shape(stage)),
            None if stage.bias is None else vector[stage.bias],
        )
        for stage in network.stages
        if isinstance(stage, Linear | Normalised)
    ]


def _shape(stage: Linear | Normalised) -> tuple[int, ...]:
    return (stage.outputs, stage.inputs) if isinstance(stage, Linear) else (stage.units,)


def forward(
    network: DenseNetwork,
    layers: Sequence[LayerViews],
    x: Tensor,
    noise: Tensor | None,
    buffers: Buffers | None = None,
    *,
    train: bool = True,
) -> Passed:
    """Return the forward pass of inputs ``x [B, inputs]``; without noise nothing is dropped.

    In training, running statistics in ``buffers`` are brought up to date.
    """
    values, masks, own = [x], dict[int, Tensor](), iter(layers)
    moments: dict[int, BatchMoments] = {}
    for number, stage in enumerate(network.stages):
        before = values[-1]
        if isinstance(stage, Linear):
            weight, bias = next(own)
            assert weight is not None
            if bias is None:
                after = torch.mm(before, weight.T)
            else:
                after = torch.addmm(bias, before, weight.T)
        elif isinstance(stage, Normalised):
            assert buffers is not None
            after, moments[number] = _normalised(stage, next(own), before, buffers, train=train)
        elif isinstance(stage, Masked):
            after = before
            if noise is not None:
                masks[number] = stage.factors(noise, before.shape[1])
                after = before * masks[number]
        else:
            # In place, unless somebody needs what comes before: the way back through another
            # activation does, and a mask that drops nothing hands on what it was given.
            fresh = number != network.features and isinstance(
                network.stages[number - 1] if number else None, Linear | Normalised
            )
            if stage == "relu":
                after = before.relu_() if fresh else before.relu()
            else:
                after = before.tanh_() if fresh else before.tanh()
        values.append(after)
    logits = values[-1]
    if network.zero_first:
        logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], 1)
    last = network.features == len(network.stages)
    output = Output(logits, logits if last else values[network.features])
    return Passed(values, masks, moments, output)


def _normalised(
    stage: Normalised, own: LayerViews, before: Tensor, buffers: Buffers, *, train: bool
) -> tuple[Tensor, BatchMoments]:
    if train:
        refuse_one_sample(len(before))
    after, mean, scale = torch.native_batch_norm(
        before,
        *own,
        buffers[stage.mean],
        buffers[stage.variance],
        train,
        stage.momentum,
        stage.epsilon,
    )
    return after, BatchMoments(mean, scale)


def refuse_one_sample(samples: int) -> None:
    """Raise for a mini-batch whose units have no variance."""
    if samples < 2:
        raise ValueError("batch normalisation needs two samples at least in a mini-batch")


def add_gradient(
    network: DenseNetwork,
    layers: Sequence[LayerViews],
    passed: Passed,
    slopes: OutputSlopes,
    into: Sequence[LayerViews],
    keep: float,
) -> None:
    """Make ``into`` the gradient of a pass, plus ``keep`` times what it was.

    With ``keep = 0`` it is not read: it may hold anything.
    """
    delta, of_features = slopes
    count = len(network.stages)
    if of_features is not None and network.features == count:
        delta, of_features = delta + of_features, None
    if network.zero_first:
        delta = delta[:, 1:]
    own, places = list(layers), list(into)
    for number in reversed(range(count)):
        if of_features is not None and network.features == number + 1:
            delta = delta + of_features
        stage, after = network.stages[number], passed.values[number + 1]
        if isinstance(stage, Linear):
            weight, _ = own.pop()
            place, bias = places.pop()
            assert weight is not None and place is not None
            place.addmm_(delta.T, passed.values[number], beta=keep)
            if bias is not None:
                torch.add(delta.sum(0), bias, alpha=keep, out=bias) if keep else torch.sum(
                    delta, 0, out=bias
                )
            if not own:
                return  # nobody asks for a gradient in the inputs
            delta = torch.mm(delta, weight)
        elif isinstance(stage, Normalised):
            moments = passed.moments[number]
            delta = _back_normalised(
                stage, own.pop(), places.pop(), passed.values[number], moments, delta, keep
            )
        elif isinstance(stage, Masked):
            delta = delta * passed.masks[number] if number in passed.masks else delta
        elif stage == "relu":
            delta = torch.ops.aten.threshold_backward(delta, after, 0)
        else:
            delta = torch.ops.aten.tanh_backward(delta, after)


def _back_normalised(
    stage: Normalised,
    own: LayerViews,
    into: LayerViews,
    before: Tensor,
    moments: BatchMoments,
    slope: Tensor,
    keep: float,
) -> Tensor:
    """Return the slope before a normalised stage, and add to the gradient in its parameters."""
    delta: Tensor
    delta, *gradients = torch.ops.aten.native_batch_norm_backward(
        slope, before, own.weight, None, None, *moments, True, stage.epsilon, [True, True, True]
    )
    for place, gradient in zip(into, gradients, strict=True):
        if place is not None:  # with keep = 0 it may hold anything
            place.copy_(torch.add(gradient, place, alpha=keep) if keep else gradient)
    return delta
