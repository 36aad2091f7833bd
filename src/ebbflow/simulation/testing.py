"""What models are tested on in a session, and what is found out when it is over."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import hits, labelled, picked
from ebbflow.core.types import Examples, ModelState, Session
from ebbflow.simulation.roster import NATURAL, partition_kind
from ebbflow.simulation.scores import FinalScores, device_scores
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
    own = picked(test, torch.isin(test.device, torch.tensor(session.devices)))
    if not len(own):
        raise EbbflowError(
            f"the {len(session.devices)} devices of session {session.index} have no test samples: "
            'give them some (data.test_split), or set evaluation to "labels" or "all"'
        )
    return own


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
    test = world.dataset.test
    right = hits(world.model, model, test)
    accuracy = 100 * int(right.sum()) / len(right)
    if test.device is None or partition_kind(world.config, world.dataset) != NATURAL:
        return FinalScores(accuracy)
    return FinalScores(accuracy, device_scores(right, test.device.numpy(), session.devices))
