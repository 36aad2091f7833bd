"""How good a model is for the devices that are here."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from ebbflow.core.inputs import prepared
from ebbflow.core.types import Examples, Model, ModelState

NUMBERS = 2**22  # input numbers per forward pass: what a convolution makes of them must fit, too


def labelled(examples: Examples, labels: Sequence[int]) -> Examples:
    """Return the samples that have one of the labels.

    >>> four = Examples(torch.arange(4.0), torch.tensor([0, 1, 2, 1]))
    >>> labelled(four, [1]).x
    tensor([1., 3.])
    """
    wanted = torch.isin(examples.y, torch.tensor(labels, device=examples.y.device))
    return Examples(examples.x[wanted], examples.y[wanted], examples.pixels)


def evaluate(model: Model, state: ModelState, test: Examples) -> tuple[float, float]:
    """Return accuracy in percent (argmax over all classes) and mean cross-entropy."""
    correct, loss = 0, 0.0
    rows = min(4096, max(64, NUMBERS // test.x[0].numel()))
    for at in range(0, len(test), rows):
        x, y = prepared(test.x[at : at + rows], test.pixels), test.y[at : at + rows]
        with torch.no_grad():
            output, _ = model.forward(state.theta, state.buffers, x, None, False)
        correct += int((output.logits.argmax(-1) == y).sum())
        loss += float(functional.cross_entropy(output.logits, y, reduction="sum"))
    return 100 * correct / len(test), loss / len(test)
