"""Which measures a task has, what they are called, and whether more is better.

Settings, tables and pictures need no more than this; `ebbflow.core.measures` computes them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ebbflow.core.errors import unknown

TaskName = Literal["classes", "binary", "regression", "multilabel", "tokens"]


class Judge(NamedTuple):
    """A measure: its name in settings and records, its title, and its direction.

    ``percent`` says whether it lies between 0 and 100.
    """

    name: str
    title: str
    higher: bool = True
    percent: bool = True

    @property
    def worst(self) -> float:
        """The value of predictions that are not even numbers."""
        if self.percent:
            return 0.0
        return -sys.float_info.max if self.higher else sys.float_info.max

    def rising(self, value: float) -> float:
        """Return a value of which more is better: its negative, if less was.

        >>> JUDGES["accuracy"].rising(80.0), JUDGES["rmse"].rising(2.0)
        (80.0, -2.0)
        """
        return value if self.higher else -value

    def shown(self, value: float) -> str:
        """Return a value as tables show it.

        >>> JUDGES["accuracy"].shown(81.256), JUDGES["rmse"].shown(1234.5678)
        ('81.26', '1235')
        """
        return f"{value:.2f}" if self.percent else f"{value:.4g}"


JUDGES = {
    judge.name: judge
    for judge in (
        Judge("accuracy", "accuracy (%)"),
        Judge("balanced_accuracy", "balanced accuracy (%)"),
        Judge("f1", "F1 (%)"),
        Judge("auc", "AUC (%)"),
        Judge("rmse", "RMSE", higher=False, percent=False),
        Judge("mae", "mean absolute error", higher=False, percent=False),
        Judge("r2", "R2", percent=False),
        Judge("perplexity", "perplexity", higher=False, percent=False),
    )
}

MEASURES: dict[str, tuple[str, ...]] = {
    "classes": ("accuracy", "balanced_accuracy", "f1", "auc"),
    "binary": ("accuracy", "auc", "balanced_accuracy", "f1"),
    "regression": ("rmse", "mae", "r2"),
    "multilabel": ("f1", "auc", "accuracy"),
    "tokens": ("accuracy", "perplexity"),
}
"""The measures of each task; the first is the usual one."""

LABELLED = frozenset({"classes", "binary"})
"""Tasks whose truth is one class for each sample."""


def judge_of(task: str, metrics: Sequence[str]) -> Judge:
    """Return the measure that starts are judged by: the first that is named, or the usual one.

    >>> judge_of("binary", ["auc"]).title
    'AUC (%)'
    """
    for name in metrics:
        if name not in MEASURES[task]:
            raise unknown(name, MEASURES[task], f"measure of the task {task}", "metrics")
    return JUDGES[(*metrics, *MEASURES[task])[0]]
