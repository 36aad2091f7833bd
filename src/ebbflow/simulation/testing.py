"""What models are tested on in a session, and what is found out when it is over."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import Score, hits, kept_outputs, labelled, picked
from ebbflow.core.judging import judge_of
from ebbflow.core.tasks import Task
from ebbflow.core.types import Examples, ModelState, Session
from ebbflow.simulation.roster import NATURAL, partition_kind
from ebbflow.simulation.scores import FinalScores, device_accuracies, summed_up
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World


def tested_on(world: World) -> str:
    """Return which test samples count: ``auto`` depends on whether they have owners."""
    rule = world.config.evaluation
    if rule != "auto":
        return rule
    natural = partition_kind(world.config, world.dataset) == NATURAL
    return "devices" if natural and world.dataset.test.device is not None else "labels"


def session_test(world: World, session: Session) -> Examples:
    """Return the test samples of a session.

    Those with labels that any of its devices holds, those of its devices themselves, or all.
    """
    test, rule = world.dataset.test, tested_on(world)
    if rule == "all":
        return test
    if rule == "labels":
        return labelled(test, session.labels)
    if test.device is None:
        raise EbbflowError(
            f'evaluation = "devices" needs test samples that say whose they are, and those of '
            f'{world.dataset.name} do not: set evaluation to "labels" or "all", or name their '
            "owners (device_test in an .npz file)"
        )
    return picked(test, torch.isin(test.device, torch.tensor(session.devices)))


def refuse_undefined(world: World, session: Session, scores: Sequence[Score]) -> None:
    """Raise an error if a measure has no value on the test samples of a session."""
    for score in scores:
        for name, value in score.measures.items():
            if math.isnan(value):
                raise EbbflowError(
                    f"the measure {name} has no value on the test samples of session "
                    f"{session.index}, which all have the same truth: leave it out of metrics, set "
                    'evaluation to "all", or give the devices more test samples'
                )


def note_what_was_reached(world: World, session: Session, tracks: Sequence[Track]) -> None:
    """Test every method's final model on all samples, and on those of each device."""
    known: dict[int, FinalScores] = {}  # methods in the same place have the same model
    for track in tracks:
        key = id(track.model.theta)
        if key not in known:
            known[key] = tested(world, session, track.model)
        track.reached = known[key]


def tested(world: World, session: Session, model: ModelState) -> FinalScores:
    """Return what a model achieves."""
    test, task = world.dataset.test, world.model.task
    natural = partition_kind(world.config, world.dataset) == NATURAL
    owners = test.device.numpy() if natural and test.device is not None else None
    if task.counted:
        right = hits(world.model, model, test)
        accuracy = 100 * int(right.sum()) / len(right)
        values = None if owners is None else device_accuracies(right, owners, session.devices)
    else:
        outputs = kept_outputs(world.model, model, test)
        accuracy = _judged(task, outputs, test.y)
        values = None
        if owners is not None:
            mine = (np.flatnonzero(owners == device) for device in session.devices)
            each = (_judged(task, outputs[rows], test.y[rows]) for rows in mine if len(rows))
            values = np.array([value for value in each if not math.isnan(value)])
    higher = judge_of(task.name, task.metrics).higher
    return FinalScores(accuracy, None if values is None else summed_up(values, higher))


def _judged(task: Task, outputs: Tensor, truth: Tensor) -> float:
    return next(iter(task.measured(outputs, truth).values()))
