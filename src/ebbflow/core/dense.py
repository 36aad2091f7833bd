"""Forward and backward passes of a dense network, in closed form: no graph is built.

What a pass costs is its matrix products. The gradient in a weight is written, or added to what is
there, by the product itself, and there is no gradient for the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core.types import DenseNetwork, Linear, Masked, Output, Theta


class LayerViews(NamedTuple):
    """The weight and the bias of one linear layer as views of a vector like theta."""

    weight: Tensor
    bias: Tensor | None


class Passed(NamedTuple):
    """A forward pass: the inputs and what each stage made of them, masks by stage, the outputs."""

    values: list[Tensor]
    masks: dict[int, Tensor]
    output: Output


class OutputSlopes(NamedTuple):
    """The loss's derivative in the logits, and in the features if it depends on them."""

    logits: Tensor
    features: Tensor | None = None


def layer_views(network: DenseNetwork, vector: Theta) -> list[LayerViews]:
    """Return the linear layers' parts of a vector, in order."""
    return [
        LayerViews(
            vector[stage.weight].view(stage.outputs, stage.inputs),
            None if stage.bias is None else vector[stage.bias],
        )
        for stage in network.stages
        if isinstance(stage, Linear)
    ]


def forward(
    network: DenseNetwork, layers: Sequence[LayerViews], x: Tensor, noise: Tensor | None
) -> Passed:
    """Return the forward pass of inputs ``x [B, inputs]``; without noise nothing is dropped."""
    values, masks, own = [x], dict[int, Tensor](), iter(layers)
    for number, stage in enumerate(network.stages):
        before = values[-1]
        if isinstance(stage, Linear):
            weight, bias = next(own)
            if bias is None:
                after = torch.mm(before, weight.T)
            else:
                after = torch.addmm(bias, before, weight.T)
        elif isinstance(stage, Masked):
            after = before
            if noise is not None:
                masks[number] = stage.factors(noise, before.shape[1])
                after = before * masks[number]
        else:
            # In place, unless somebody needs what comes before.
            fresh = 0 < number != network.features
            if stage == "relu":
                after = before.relu_() if fresh else before.relu()
            else:
                after = before.tanh_() if fresh else before.tanh()
        values.append(after)
    logits = values[-1]
    if network.zero_first:
        logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], 1)
    last = network.features == len(network.stages)
    return Passed(values, masks, Output(logits, logits if last else values[network.features]))


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
            place.addmm_(delta.T, passed.values[number], beta=keep)
            if bias is not None:
                torch.add(delta.sum(0), bias, alpha=keep, out=bias) if keep else torch.sum(
                    delta, 0, out=bias
                )
            if not own:
                return  # nobody asks for a gradient in the inputs
            delta = torch.mm(delta, weight)
        elif isinstance(stage, Masked):
            delta = delta * passed.masks[number] if number in passed.masks else delta
        elif stage == "relu":
            delta = torch.ops.aten.threshold_backward(delta, after, 0)
        else:
            delta = torch.ops.aten.tanh_backward(delta, after)
