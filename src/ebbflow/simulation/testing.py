"""What models are tested on in a session, and what is found out when it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.config.resolved import NATURAL
from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import Score, hits, kept_outputs, labelled, picked
from ebbflow.core.judging import judge_of
from ebbflow.core.tasks import Task
from ebbflow.core.types import Examples, ModelState, Session
from ebbflow.simulation.roster import partition_kind
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


def refuse_undefined(session: Session, scores: Sequence[Score]) -> None:
    """Raise an error if a measure has no value on the test samples of a session."""
    for score in scores:
        for name, value in score.measures.items():
            if math.isnan(value):
                raise EbbflowError(
                    f"the measure {name} has no value on the test samples of session "
                    f"{session.index}, which all have the same truth: leave it out of metrics, set "
                    'evaluation to "all", or give the devices more test samples'
                )


def note_what_was_reached(
    world: World, session: Session, tracks: Sequence[Track], scores: Sequence[Score]
) -> None:
    """Note what every method's final model achieves: on all test samples, and device by device.

    ``scores`` are those on all test samples.
    """
    known: dict[int, Mapping[int, float]] = {}  # methods in the same place have the same model
    higher = judge_of(world.config.task, world.config.metrics).higher
    for track, score in zip(tracks, scores, strict=True):
        key = id(track.model.theta)
        if key not in known:
            known[key] = by_device(world, session, track.model)
        each = known[key]
        track.reached = FinalScores(score.accuracy, each, summed_up(each, higher))


def by_device(world: World, session: Session, model: ModelState) -> Mapping[int, float]:
    """Return what a model achieves on each device present, if test samples say whose they are."""
    test, task = world.dataset.test, world.model.task
    if test.device is None or partition_kind(world.config, world.dataset) != NATURAL:
        return {}
    owners = test.device.numpy()
    if task.counted:
        right = hits(world.model, model, test)
        return device_accuracies(right, owners, session.devices)
    outputs = kept_outputs(world.model, model, test)
    mine = ((device, np.flatnonzero(owners == device)) for device in session.devices)
    each = ((d, _judged(task, outputs[rows], test.y[rows])) for d, rows in mine if len(rows))
    return {device: value for device, value in each if not math.isnan(value)}


def _judged(task: Task, outputs: Tensor, truth: Tensor) -> float:
    return next(iter(task.measured(outputs, truth).values()))
