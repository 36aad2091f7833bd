"""Refuses updates that would spoil a round, so that one bad device stops nobody.

An update is refused if it is not finite, or if its norm is too many times the median of the round.
The round is then computed without those devices, so that it is, bit by bit, the round in which they
had not taken part. Single updates come from cohorts of one device, which every engine can train.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import torch

from ebbflow.config.schema import GuardSettings
from ebbflow.core.algorithm import Upload
from ebbflow.core.errors import TrainingError
from ebbflow.core.local import Cohort, Engine, Lane, Trained

NOT_FINITE = "not finite"
TOO_LARGE = "too large"


class Refusal(NamedTuple):
    """Devices whose updates were refused in a round; it is ``abandoned`` if too few were left."""

    round: int
    devices: tuple[int, ...]
    reasons: tuple[str, ...]
    abandoned: bool = False


class Outcome(NamedTuple):
    """What is left of a lane's round; ``trained`` is None if the round is abandoned.

    ``error`` names device and step, if the engine did.
    """

    trained: Trained | None
    refusal: Refusal | None = None
    error: TrainingError | None = None


def guarded_rounds(
    engine: Engine, lanes: list[Lane], cohort: Cohort, guard: GuardSettings
) -> list[Outcome]:
    """Train a cohort in every lane, without the devices whose updates are refused."""
    try:
        trained: list[Trained | None] = list(engine(lanes, cohort))
    except TrainingError:
        # An engine that looks at every device stops at the first that diverges, in any lane.
        if guard.not_finite == "stop":
            raise
        trained = [None] * len(lanes)
    return [
        _outcome(engine, lane, cohort, done, guard)
        for lane, done in zip(lanes, trained, strict=True)
    ]


def _outcome(
    engine: Engine, lane: Lane, cohort: Cohort, done: Trained | None, guard: GuardSettings
) -> Outcome:
    fine = done is not None and _is_finite(done[0])
    if (fine or guard.not_finite == "stop") and guard.norm is None:
        return Outcome(done)
    reasons, error = _reasons(engine, lane, cohort, guard)
    if not reasons:
        return Outcome(done if done is not None else engine([lane], cohort)[0])
    kept = [place for place in range(len(cohort.devices)) if place not in reasons]
    abandoned = len(kept) < max(1, guard.quorum * len(cohort.devices))
    refusal = Refusal(
        cohort.round,
        tuple(cohort.devices[place] for place in reasons),
        tuple(reasons.values()),
        abandoned,
    )
    return Outcome(None if abandoned else engine([lane], cohort.only(kept))[0], refusal, error)


def _reasons(
    engine: Engine, lane: Lane, cohort: Cohort, guard: GuardSettings
) -> tuple[dict[int, str], TrainingError | None]:
    """Return why the updates at some places of the cohort are refused, and the first error."""
    norms: dict[int, float] = {}
    first: TrainingError | None = None
    for place in range(len(cohort.devices)):
        try:
            ((upload, _),) = engine([lane], cohort.only([place]))
        except TrainingError as error:
            first = first or error
            continue
        if _is_finite(upload):
            norms[place] = float((upload.delta / upload.samples).double().norm())
    reasons = {p: NOT_FINITE for p in range(len(cohort.devices)) if p not in norms}
    if guard.norm is not None and norms:
        most = guard.norm * median(norms.values())
        reasons |= {place: TOO_LARGE for place, norm in norms.items() if norm > most}
    return dict(sorted(reasons.items())), first


def _is_finite(upload: Upload) -> bool:
    vectors = (upload.delta, upload.buffers, *upload.extras.values())
    return all(bool(torch.isfinite(vector).all()) for vector in vectors)
