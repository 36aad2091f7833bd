"""From a cohort to what the server may use: training, faults, the guard, and the aggregation.

Where sums are enough, the engine adds up all updates at once. Updates are looked at one by one
where something asks for it: a spoilt or refused one, a limit on norms, privacy, or an aggregation
that needs them. Single updates come from cohorts of one device, which every engine can train.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ebbflow.core.aggregation import aggregate, is_finite
from ebbflow.core.algorithm import Upload, add_up
from ebbflow.core.errors import TrainingError
from ebbflow.core.local import Cohort, Engine, Lane, Trained
from ebbflow.core.types import State
from ebbflow.simulation.faults import (
    Lost,
    lost_updates,
    spoil,
    spoilt_updates,
    with_wrong_labels,
)
from ebbflow.simulation.guard import NOT_FINITE, LeftOut, is_abandoned, refusals
from ebbflow.simulation.privacy import private_total
from ebbflow.simulation.server_data import server_cohort
from ebbflow.simulation.world import World


class Outcome(NamedTuple):
    """What is left of a lane's round; ``trained`` is None if there is nothing to go on with.

    ``error`` says where a device diverged, if the engine did.
    """

    trained: Trained | None
    left_out: LeftOut | None = None
    error: TrainingError | None = None


class Collected(NamedTuple):
    """The outcome in every lane, and the updates that got lost, by their places."""

    outcomes: list[Outcome]
    lost: dict[int, Lost]


class _Single(NamedTuple):
    """One device's upload and its new state."""

    upload: Upload
    state: State


class _Round(NamedTuple):
    """A round of all lanes: its cohort, and the places that are lost, spoilt and neither."""

    world: World
    engine: Engine
    cohort: Cohort
    lost: Mapping[int, Lost]
    spoilt: Mapping[int, list[str]]
    honest: list[int]


def collect(world: World, engine: Engine, lanes: Sequence[Lane], cohort: Cohort) -> Collected:
    """Train a cohort in every lane, without the updates that are lost or refused."""
    lost = lost_updates(world, cohort)
    spoilt = {p: kinds for p, kinds in spoilt_updates(world, cohort).items() if p not in lost}
    honest = [p for p in range(len(cohort.devices)) if p not in lost and p not in spoilt]
    here = _Round(world, engine, with_wrong_labels(world, cohort), lost, spoilt, honest)
    sums: list[Trained | TrainingError | None] = [None] * len(lanes)
    if honest and not world.needs_single_updates:
        sums = _sums(here, lanes)
    outcomes = [_outcome(here, lane, total) for lane, total in zip(lanes, sums, strict=True)]
    return Collected(outcomes, lost)


def _sums(here: _Round, lanes: Sequence[Lane]) -> list[Trained | TrainingError | None]:
    """Return the honest devices' sum in every lane, or why there is none."""
    everybody = len(here.honest) == len(here.cohort.devices)
    cohort = here.cohort if everybody else here.cohort.only(here.honest)
    try:
        return list(here.engine(lanes, cohort))
    except TrainingError as error:
        # An engine that looks at every device stops at the first that diverges, in any lane.
        if here.world.config.guard.not_finite == "refuse":
            return [None] * len(lanes)
        if len(lanes) == 1:
            return [error]
        return [_sums(here, [lane])[0] for lane in lanes]


def _outcome(here: _Round, lane: Lane, total: Trained | TrainingError | None) -> Outcome:
    world, guard = here.world, here.world.config.guard
    if isinstance(total, TrainingError):
        return Outcome(None, error=total)
    singles: dict[int, _Single | None] = {}
    error: TrainingError | None = None
    fine = total is not None and (is_finite(total[0]) or guard.not_finite == "stop")
    if here.honest and (not fine or guard.norm is not None):
        singles, error = _trained_alone(here, lane, here.honest)
    wronged, later = _trained_alone(here, lane, here.spoilt)
    error = error or later
    if error is not None and guard.not_finite == "stop":
        return Outcome(None, error=error)
    singles |= _spoilt(here, wronged, singles, total)
    refused = refusals({p: one and one.upload for p, one in singles.items()}, guard)
    if NOT_FINITE in refused.values() and guard.not_finite == "stop":
        place = next(place for place, reason in refused.items() if reason == NOT_FINITE)
        return Outcome(None, error=_not_finite(here.cohort, place))
    reasons = {p: loss.reason for p, loss in here.lost.items()} | refused
    kept = [p for p in range(len(here.cohort.devices)) if p not in reasons]
    arrived = len(kept)
    if world.config.privacy.clip is not None and kept:
        arrived += len(refused)  # they count as zero: whether a round counts must reveal nobody
    left_out = _left_out(here, reasons, arrived)
    if left_out is not None and left_out.abandoned:
        return Outcome(None, left_out, error)
    if world.needs_single_updates:
        chosen = [one for p in kept if (one := singles[p]) is not None]
        whole = _aggregated(here, lane, [one.upload for one in chosen])
        devices = [here.cohort.devices[p] for p in kept]
        states = {device: one.state for device, one in zip(devices, chosen, strict=True)}
        return Outcome((whole, states), left_out, error)
    return Outcome(_added_up(here, lane, kept, singles, total), left_out, error)


def _trained_alone(
    here: _Round, lane: Lane, places: Iterable[int]
) -> tuple[dict[int, _Single | None], TrainingError | None]:
    """Train devices one by one; return None for those that diverge, and the first error."""
    singles: dict[int, _Single | None] = {}
    first: TrainingError | None = None
    for place in places:
        try:
            ((upload, states),) = here.engine([lane], here.cohort.only([place]))
            singles[place] = _Single(upload, states[here.cohort.devices[place]])
        except TrainingError as error:
            singles[place], first = None, first or error
    return singles, first


def _spoilt(
    here: _Round,
    wronged: Mapping[int, _Single | None],
    honest: Mapping[int, _Single | None],
    total: Trained | None,
) -> dict[int, _Single | None]:
    """Return what arrives from the devices that are at fault."""
    others = None if total is None or not is_finite(total[0]) else total[0]
    if others is None:
        for one in honest.values():
            if one is not None and is_finite(one.upload):
                others = add_up(others, one.upload)
    arriving = dict(wronged)
    for place, one in wronged.items():
        if one is not None:
            known, kinds = others or one.upload, here.spoilt[place]
            upload = spoil(here.world, here.cohort, place, kinds, one.upload, known)
            arriving[place] = one._replace(upload=upload)
    return arriving


def _not_finite(cohort: Cohort, place: int) -> TrainingError:
    return TrainingError(
        f"session {cohort.session}, round {cohort.round}, device {cohort.devices[place]}: the "
        'update is not finite; set guard.not_finite = "refuse" to go on without it'
    )


def _left_out(here: _Round, reasons: Mapping[int, str], arrived: int) -> LeftOut | None:
    if not reasons:
        return None
    cohort = here.cohort
    places = sorted(reasons)
    return LeftOut(
        cohort.round,
        tuple(cohort.devices[place] for place in places),
        tuple(reasons[place] for place in places),
        is_abandoned(arrived, len(cohort.devices), here.world.config.guard),
    )


def _aggregated(here: _Round, lane: Lane, uploads: Sequence[Upload]) -> Upload:
    """Return what the server makes of single updates."""
    world = here.world
    if world.config.privacy.clip is not None:
        return private_total(world, here.cohort, uploads)
    server = None
    if world.aggregation.server_data:
        ((server, _),) = here.engine([lane], server_cohort(world, here.cohort))
    return aggregate(world.aggregation, uploads, lane.shared, server)


def _added_up(
    here: _Round,
    lane: Lane,
    kept: Sequence[int],
    singles: Mapping[int, _Single | None],
    total: Trained | None,
) -> Trained:
    """Return the sum of all updates that are kept, the honest ones first and by the engine."""
    honest = [place for place in kept if place not in here.spoilt]
    if honest and (total is None or len(honest) < len(here.honest)):
        total = here.engine([lane], here.cohort.only(honest))[0]
    added, states = total if honest and total is not None else (None, {})
    for place in kept:
        one = singles.get(place) if place in here.spoilt else None
        if one is not None:
            added = add_up(added, one.upload)
            states = {**states, here.cohort.devices[place]: one.state}
    assert added is not None  # or the round were abandoned
    return added, states
