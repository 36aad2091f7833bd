"""Accuracy and loss of a model on the labels of the devices present."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ebbflow.core.inputs import prepared
from ebbflow.core.types import Examples, Model, ModelState

NUMBERS = 2**22  # input numbers per forward pass: a convolution's activations must fit, too

Score = tuple[float, float]
"""Accuracy in percent and mean cross-entropy."""


def labelled(examples: Examples, labels: Sequence[int]) -> Examples:
    """Return the samples that have one of the labels.

    >>> four = Examples(torch.arange(4.0), torch.tensor([0, 1, 2, 1]))
    >>> labelled(four, [1]).x
    tensor([1., 3.])
    """
    wanted = torch.isin(examples.y, torch.tensor(labels, device=examples.y.device))
    return picked(examples, wanted)


def picked(examples: Examples, rows: Tensor) -> Examples:
    """Return some of the samples, by their numbers or by a mask."""
    owners = None if examples.device is None else examples.device[rows.cpu()]
    return Examples(examples.x[rows], examples.y[rows], examples.pixels, owners)


def parts(test: Examples) -> list[range]:
    """Return the rows of each forward pass; the cut depends only on the size of a sample."""
    rows = min(4096, max(64, NUMBERS // test.x[0].numel()))
    return [range(at, min(at + rows, len(test))) for at in range(0, len(test), rows)]


def count(model: Model, state: ModelState, test: Examples, rows: range) -> tuple[int, float]:
    """Return how many rows are classified correctly (argmax over all classes), and their loss."""
    x, y = prepared(test.x[rows.start : rows.stop], test.pixels), test.y[rows.start : rows.stop]
    with torch.no_grad():
        output, _ = model.forward(state.theta, state.buffers, x, None, False)
    correct = int((output.logits.argmax(-1) == y).sum())
    return correct, float(functional.cross_entropy(output.logits, y, reduction="sum"))


def hits(model: Model, state: ModelState, test: Examples) -> NDArray[np.bool_]:
    """Return which samples are classified correctly (argmax over all classes)."""
    right = []
    for rows in parts(test):
        x, y = prepared(test.x[rows.start : rows.stop], test.pixels), test.y[rows.start : rows.stop]
        with torch.no_grad():
            output, _ = model.forward(state.theta, state.buffers, x, None, False)
        right.append((output.logits.argmax(-1) == y).cpu().numpy())
    return np.concatenate(right)


def score(counts: Sequence[tuple[int, float]], samples: int) -> Score:
    """Return accuracy in percent and mean cross-entropy from the counts of all parts, in order."""
    correct, loss = (sum(values) for values in zip(*counts, strict=True))
    return 100 * correct / samples, loss / samples


def evaluate(model: Model, state: ModelState, test: Examples) -> Score:
    """Return accuracy in percent and mean cross-entropy."""
    return score([count(model, state, test, rows) for rows in parts(test)], len(test))
