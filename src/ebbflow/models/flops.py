"""Counts the floating-point operations of a model's forward pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ebbflow.core.types import Model


def flops(model: Model, x: Tensor) -> int:
    """Return the operations per sample of one forward pass over the inputs ``x [B, ...]``.

    Each multiply-add of a matrix product or a convolution counts as two; biases, normalisation,
    ReLU, pooling and look-ups are not counted. A training step takes about three times as many.

    >>> from ebbflow.models.softmax import softmax
    >>> flops(softmax((1, 28, 28), 10), torch.zeros(1, 1, 28, 28))
    15680
    """
    theta = torch.zeros(model.layout.total, device=x.device)
    buffers = torch.ones(model.buffer_layout.total, device=x.device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.forward(theta, buffers, x, None, False)
    return int(counter.get_total_flops()) // len(x)
