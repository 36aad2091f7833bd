"""The task of a run, and whether its data and settings are made for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.judging import MEASURES
from ebbflow.core.tasks import LOSSES, TASKS, Task, with_loss
from ebbflow.core.types import Dataset
from ebbflow.data.distributions import DISTRIBUTIONS

_TRUTH = {
    "classes": "one class for each sample",
    "binary": "one of two classes for each sample",
    "regression": "numbers",
    "multilabel": "zeros and ones, a column for each label",
    "tokens": "a row of token numbers for each sample",
}


def task_of(config: Config, dataset: Dataset) -> Task:
    """Return the task with the measures that are asked for."""
    for problem in _problems(config, dataset):
        raise EbbflowError(problem)
    metrics = tuple(config.metrics) or MEASURES[config.task][:1]
    task = replace(TASKS[config.task], metrics=metrics, scale=dataset.scale)
    if config.loss is None:
        return task
    if config.loss not in LOSSES:
        raise unknown(config.loss, LOSSES, "loss of your own", "loss")
    return with_loss(task, LOSSES[config.loss])


def _problems(config: Config, dataset: Dataset) -> Iterator[str]:
    task, y = config.task, dataset.train.y
    if not _fits(task, dataset):
        held = "numbers" if y.is_floating_point() else "a row of whole numbers for each sample"
        if y.dim() == 1 and not y.is_floating_point():
            held = f"one of {dataset.classes} classes for each sample"
        yield (
            f'task = "{task}" needs {_TRUTH[task]}, and what is to be predicted in {dataset.name} '
            f"is {held}: set task to what it is, one of {', '.join(_TRUTH)}"
        )
    if TASKS[task].labels:
        return
    if config.partition.overlap is not None:
        yield (
            f"partition.overlap = {config.partition.overlap:g} divides samples by their labels, "
            f'which task = "{task}" has not: leave it out'
        )
    if config.partition.kind in (*DISTRIBUTIONS, "pool"):
        yield (
            f'partition.kind = "{config.partition.kind}" divides samples by their labels, which '
            f'task = "{task}" has not: choose natural or dirichlet, which then divides them evenly'
        )
    if config.faults.labels is not None:
        yield f'faults.labels reverses labels, which task = "{task}" has not: leave it out'


def _fits(task: str, dataset: Dataset) -> bool:
    y = dataset.train.y
    whole = not y.is_floating_point()
    if task in ("classes", "binary"):
        return whole and y.dim() == 1 and (task == "classes" or dataset.classes == 2)
    if task == "tokens":
        return whole and y.dim() == 2
    if whole or y.dim() != 2:
        return False
    return task == "regression" or bool(torch.isin(y, torch.tensor([0.0, 1.0]).to(y)).all())
