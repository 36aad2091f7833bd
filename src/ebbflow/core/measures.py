"""Measures of how good predictions are, from a model's outputs and the truth.

Bounded ones are in percent. Outputs are what a model's last layer gives: class scores, numbers, or
a score for each of several labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating]
Truth = NDArray[np.int64] | NDArray[np.floating]


Measure = Callable[[Numbers, Truth], float]
"""From outputs ``[N, ...]`` and truth ``[N, ...]`` to a number."""


# --- classes -------------------------------------------------------------------------------------


def accuracy(outputs: Numbers, truth: Truth) -> float:
    """Return the share of samples whose highest score is that of their class.

    >>> accuracy(np.array([[1.0, 0], [0, 1], [3, 2]]), np.array([0, 1, 1]))
    66.66666666666667
    """
    return 100 * int((outputs.argmax(-1) == truth).sum()) / truth.size


def balanced_accuracy(outputs: Numbers, truth: Truth) -> float:
    """Return the mean over the classes that occur of the share that is right.

    >>> balanced_accuracy(np.array([[1.0, 0], [1, 0], [1, 0], [1, 0]]), np.array([0, 0, 0, 1]))
    50.0
    """
    right = outputs.argmax(-1) == truth
    classes = np.unique(truth)
    return 100 * float(np.mean([right[truth == label].mean() for label in classes]))


def f1(outputs: Numbers, truth: Truth) -> float:
    """Return the harmonic mean of precision and recall.

    Of two classes it is that of class 1; of more, the mean over the classes that occur.

    >>> f1(np.array([[0.0, 1], [0, 1], [1, 0]]), np.array([1, 0, 1]))
    50.0
    """
    found = outputs.argmax(-1)
    classes = np.array([1]) if outputs.shape[-1] == 2 else np.unique(truth)
    return float(np.mean([_f1(found == label, truth == label) for label in classes]))


def _f1(found: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    both, either = int((found & true).sum()), int(found.sum()) + int(true.sum())
    return 200 * both / either if either else 0.0


def auc(outputs: Numbers, truth: Truth) -> float:
    """Return the area under the ROC curve: how often a true one has the higher score.

    Ties count half. Of two classes it is that of class 1; of more, the mean over the classes that
    occur of each against the others. Not a number where only one class occurs.

    >>> auc(np.array([[0.0, 0.1], [0.0, 0.4], [0.0, 0.35], [0.0, 0.8]]), np.array([0, 0, 1, 1]))
    75.0
    """
    if outputs.shape[-1] == 2:
        return _area(outputs[:, 1] - outputs[:, 0], truth == 1)
    from scipy.special import softmax  # noqa: PLC0415 - slow to import

    scores = softmax(outputs.astype(np.float64), axis=-1)
    areas = [_area(scores[:, label], truth == label) for label in np.unique(truth)]
    return float(np.mean(areas)) if areas else math.nan


def _area(scores: Numbers, true: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve in percent, by ranks (Mann and Whitney)."""
    from scipy.stats import rankdata  # noqa: PLC0415 - slow to import

    positive, negative = int(true.sum()), int((~true).sum())
    if not positive or not negative:
        return math.nan
    ranks = rankdata(scores.astype(np.float64))
    above = float(ranks[true].sum()) - positive * (positive + 1) / 2
    return 100 * above / (positive * negative)


# --- several labels for a sample -----------------------------------------------------------------


def label_accuracy(outputs: Numbers, truth: Truth) -> float:
    """Return the share of labels, of all samples, that are rightly there or not there.

    >>> label_accuracy(np.array([[1.0, -1], [1, 1]]), np.array([[1.0, 0], [0, 1]]))
    75.0
    """
    return 100 * float(((outputs > 0) == (truth > 0.5)).mean())


def label_f1(outputs: Numbers, truth: Truth) -> float:
    """Return the harmonic mean of precision and recall over all labels of all samples."""
    return _f1((outputs > 0).reshape(-1), (truth > 0.5).reshape(-1))


def label_auc(outputs: Numbers, truth: Truth) -> float:
    """Return the mean area under the ROC curve over labels that are there and not there."""
    areas = [_area(outputs[:, k], truth[:, k] > 0.5) for k in range(truth.shape[1])]
    known = [area for area in areas if not math.isnan(area)]
    return float(np.mean(known)) if known else math.nan


# --- numbers -------------------------------------------------------------------------------------


def rmse(outputs: Numbers, truth: Truth) -> float:
    """Return the root of the mean squared error.

    >>> rmse(np.array([[1.0], [3.0]]), np.array([[1.0], [0.0]]))
    2.1213203435596424
    """
    return math.sqrt(float(np.mean((outputs.astype(np.float64) - truth) ** 2)))


def mae(outputs: Numbers, truth: Truth) -> float:
    """Return the mean absolute error."""
    return float(np.mean(np.abs(outputs.astype(np.float64) - truth)))


def r2(outputs: Numbers, truth: Truth) -> float:
    """Return the share of the variance that is explained, the mean over all numbers of a sample.

    One is perfect, zero as good as always saying the mean; it may be negative.

    >>> r2(np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]]))
    1.0
    """
    left = ((outputs.astype(np.float64) - truth) ** 2).sum(0)
    whole = ((truth - truth.mean(0)) ** 2).sum(0)
    known = whole > 0
    return float(np.mean(1 - left[known] / whole[known])) if known.any() else math.nan


# --- tokens, kept as the log probability of the true one and whether it is the likeliest ---------


def token_accuracy(outputs: Numbers, truth: Truth) -> float:
    """Return the share of tokens that are predicted."""
    return 100 * float(outputs[..., 1][truth >= 0].mean())


def perplexity(outputs: Numbers, truth: Truth) -> float:
    """Return e to the mean cross-entropy of a token."""
    return math.exp(-float(outputs[..., 0][truth >= 0].mean(dtype=np.float64)))
