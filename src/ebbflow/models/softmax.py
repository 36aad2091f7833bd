"""Softmax regression (7,850 parameters on 28x28 images), with its gradient in closed form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ebbflow.core.types import Buffers, EngineHints, Layout, Model, ModelState, Output, Theta
from ebbflow.models.checks import bounded


def softmax(sample_shape: tuple[int, ...], classes: int) -> Model:
    """Return logits = W x + b on the flattened input.

    With C the loss's derivative in the logits, the gradient is C^T X in W and C^T 1 in b; no graph
    is needed. MOON's representation is the logits, as there is no hidden layer.
    """
    inputs = math.prod(sample_shape)
    layout = Layout(("weight", "bias"), ((classes, inputs), (classes,)))
    split = classes * inputs
    bounded("softmax", sample_shape, classes, layout.total)

    def initial(draw: torch.Generator) -> ModelState:
        # As torch draws a linear layer: uniform within 1/sqrt(inputs).
        bound = 1 / math.sqrt(inputs)
        return ModelState(
            torch.empty(layout.total).uniform_(-bound, bound, generator=draw), torch.zeros(0)
        )

    def forward(
        theta: Theta, buffers: Buffers, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Buffers]:
        weight = theta[:split].view(classes, inputs)
        logits = x.flatten(1) @ weight.T + theta[split:]
        return Output(logits, logits), buffers

    def pullback(theta: Theta, x: Tensor, cotangent: Output) -> Tensor:
        slope = cotangent.logits + cotangent.features
        return torch.cat([(slope.T @ x.flatten(1)).view(-1), slope.sum(0)])

    return Model(
        "softmax",
        layout,
        Layout((), ()),
        initial,
        forward,
        pullback=pullback,
        hints=EngineHints(linear=True),
    )
