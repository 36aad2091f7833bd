"""Accuracy and loss of a model on the labels of the devices present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ebbflow.core.inputs import prepared
from ebbflow.core.tasks import CLASSES, Task
from ebbflow.core.types import Examples, Model, ModelState

NUMBERS = 2**22  # input numbers per forward pass: a convolution's activations must fit, too


class Score(NamedTuple):
    """How good a model is: the measure that starts are judged by, the mean loss, and all measures.

    The measure is the accuracy in percent unless the task has another one.
    """

    accuracy: float
    loss: float
    measures: Mapping[str, float] = {}


class Tally(NamedTuple):
    """What part of a test set adds to a score.

    ``correct`` samples and their summed ``loss``; what is kept of the ``outputs`` where counting
    the correct ones is not enough.
    """

    correct: int
    loss: float
    outputs: Tensor | None = None


def labelled(examples: Examples, labels: Sequence[int]) -> Examples:
    """Return the samples that have one of the labels.

    >>> four = Examples(torch.arange(4.0), torch.tensor([0, 1, 2, 1]))
    >>> labelled(four, [1]).x
    tensor([1., 3.])
    """
    wanted = torch.isin(examples.kinds, torch.tensor(labels, device=examples.y.device))
    return picked(examples, wanted)


def picked(examples: Examples, rows: Tensor) -> Examples:
    """Return some of the samples, by their numbers or by a mask."""
    owners = None if examples.device is None else examples.device[rows.cpu()]
    return Examples(examples.x[rows], examples.y[rows], examples.pixels, owners)


def parts(test: Examples) -> list[range]:
    """Return the rows of each forward pass; the cut depends only on the size of a sample."""
    rows = min(4096, max(64, NUMBERS // test.x[0].numel()))
    return [range(at, min(at + rows, len(test))) for at in range(0, len(test), rows)]


def count(model: Model, state: ModelState, test: Examples, rows: range) -> Tally:
    """Return what some rows of a test set add to a model's score."""
    return tally(model.task, *_outputs(model, state, test, rows))


def tested_rows(test: Examples, rows: range) -> tuple[Tensor, Tensor]:
    """Return some rows of a test set as a model reads them, and the truth."""
    return prepared(test.x[rows.start : rows.stop], test.pixels), test.y[rows.start : rows.stop]


def _outputs(model: Model, state: ModelState, test: Examples, rows: range) -> tuple[Tensor, Tensor]:
    """Return the outputs for some rows of a test set, and the truth."""
    x, y = tested_rows(test, rows)
    with torch.no_grad():
        output, _ = model.forward(state.theta, state.buffers, x, None, False)
    return output.logits, y


def tally(task: Task, outputs: Tensor, truth: Tensor) -> Tally:
    """Return what samples with these outputs add to a score (argmax over all classes)."""
    if not task.labels:
        loss = float(task.loss(outputs, truth).sum(dtype=torch.float64))
        return Tally(0, loss, task.kept(outputs, truth))
    correct = int((outputs.argmax(-1) == truth).sum())
    loss = float(functional.cross_entropy(outputs, truth, reduction="sum"))
    return Tally(correct, loss, None if task.counted else outputs)


def hits(model: Model, state: ModelState, test: Examples) -> NDArray[np.bool_]:
    """Return which samples are classified correctly (argmax over all classes)."""
    found = (_outputs(model, state, test, rows) for rows in parts(test))
    return np.concatenate([(logits.argmax(-1) == y).cpu().numpy() for logits, y in found])


def kept_outputs(model: Model, state: ModelState, test: Examples) -> Tensor:
    """Return what is kept of the outputs of all samples, for measures to be taken of."""
    kept = [count(model, state, test, rows).outputs for rows in parts(test)]
    return torch.cat([part for part in kept if part is not None])


def score(tallies: Sequence[Tally], truth: Tensor, task: Task = CLASSES) -> Score:
    """Return the score from the tallies of all parts, in order."""
    samples = len(truth)
    loss = sum(part.loss for part in tallies) / samples
    kept = [part.outputs for part in tallies if part.outputs is not None]
    if not kept:
        return Score(100 * sum(part.correct for part in tallies) / samples, loss)
    measures = task.measured(torch.cat(kept), truth)
    return Score(next(iter(measures.values())), loss, measures)


def scores(tallies: Sequence[Sequence[Tally]], test: Examples, task: Task) -> list[Score]:
    """Return every model's score from its tallies of all parts of a test set, in order."""
    return [score(of_model, test.y, task) for of_model in zip(*tallies, strict=True)]


def evaluate(model: Model, state: ModelState, test: Examples) -> Score:
    """Return how good a model is on a test set."""
    tallies = [count(model, state, test, rows) for rows in parts(test)]
    return score(tallies, test.y, model.task)
