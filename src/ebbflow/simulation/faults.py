"""Brings about what goes wrong on devices: lost updates, broken ones, and malicious ones.

Who is concerned, and when, is drawn by name like everything else: it depends neither on the method
nor on the order of work. A lost update never arrives. A broken or malicious one does, and counts
like those of the others, unless the guard refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.config.schema import Dropout, Fault
from ebbflow.core.algorithm import Upload
from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import Cohort
from ebbflow.core.rng import Name, generator, torch_generator
from ebbflow.core.types import Examples, Indices
from ebbflow.simulation.world import World

SPOILING = ("scaled", "flipped", "noise", "manipulated", "wrong", "nan", "infinite")
"""The faults that change an update, in the order in which they do."""


class Lost(NamedTuple):
    """Why an update does not arrive, and what its device did in vain.

    ``worked`` is the part of its local steps that the device made; ``sent`` whether it sent them.
    """

    reason: str
    worked: float = 0.0
    sent: bool = False


def lost_updates(world: World, cohort: Cohort) -> dict[int, Lost]:
    """Return the places of a cohort whose updates never arrive."""
    faults = world.config.faults
    found: dict[int, Lost] = {}
    if faults.straggler is not None:
        slowdown, deadline = faults.straggler.slowdown, faults.straggler.deadline
        for place, draw in _struck(world, cohort, "straggler", faults.straggler):
            if 1 + draw.exponential(slowdown) > deadline:
                found[place] = Lost("late", worked=1.0, sent=True)
    if faults.dropout is not None:
        for place, draw in _struck(world, cohort, "dropout", faults.dropout):
            found[place] = _dropped(faults.dropout, draw)
    if faults.vanishing is not None:
        for t in range(max(1, cohort.round - faults.vanishing.rounds + 1), cohort.round + 1):
            then = cohort._replace(round=t)
            for place, _ in _struck(world, then, "vanishing", faults.vanishing):
                found[place] = Lost("vanished")
    return dict(sorted(found.items()))


def _dropped(fault: Dropout, draw: np.random.Generator) -> Lost:
    reason = f"dropped out {fault.when} training"
    if fault.when == "during":
        return Lost(reason, worked=draw.random())
    return Lost(reason, worked=1.0, sent=True) if fault.when == "after" else Lost(reason)


def _struck(
    world: World, cohort: Cohort, kind: str, fault: Fault
) -> Iterator[tuple[int, np.random.Generator]]:
    """Yield the places that a fault strikes in this round, with a generator for its details."""
    devices = world.sessions[cohort.session - 1].devices
    concerned = _concerned(world.seed, kind, devices, fault.devices)
    for place, device in enumerate(cohort.devices):
        if device in concerned:
            draw = generator(*_names(cohort, kind, device))
            if draw.random() < fault.rate:
                yield place, draw


def _names(cohort: Cohort, kind: str, device: int) -> tuple[Name, ...]:
    return (*cohort.names, "fault", kind, cohort.session, cohort.round, device)


def _concerned(
    seed: int, kind: str, devices: tuple[int, ...], chosen: float | list[int]
) -> frozenset[int]:
    """Return the devices that a fault concerns."""
    return frozenset(chosen) if isinstance(chosen, list) else _share(seed, kind, devices, chosen)


@lru_cache(maxsize=64)
def _share(seed: int, kind: str, devices: tuple[int, ...], share: float) -> frozenset[int]:
    """Return a share of the devices: those with the lowest numbers, drawn once for each device."""
    if share == 1:
        return frozenset(devices)
    drawn = {device: generator(seed, "faulty", kind, device).random() for device in devices}
    return frozenset(sorted(devices, key=drawn.__getitem__)[: round(share * len(devices))])


# --- updates that arrive spoilt ------------------------------------------------------------------


def spoilt_updates(world: World, cohort: Cohort) -> dict[int, list[str]]:
    """Return the places of a cohort whose updates arrive spoilt, and by which faults."""
    found: dict[int, list[str]] = {}
    for kind in SPOILING:
        fault = getattr(world.config.faults, kind)
        if fault is not None:
            for place, _ in _struck(world, cohort, kind, fault):
                found.setdefault(place, []).append(kind)
    return dict(sorted(found.items()))


def spoil(
    world: World, cohort: Cohort, place: int, kinds: list[str], upload: Upload, others: Upload
) -> Upload:
    """Return what arrives from a device instead of its upload; ``others`` sums the honest ones."""
    for kind in kinds:
        draw = torch_generator(*_names(cohort, kind, cohort.devices[place]), "vector")
        factor = getattr(getattr(world.config.faults, kind), "factor", 1.0)
        theirs, share = {"delta": others.delta, **others.extras}, upload.samples / others.samples
        sent = {
            name: _changed(kind, factor, mine, share * theirs[name], draw)
            for name, mine in {"delta": upload.delta, **upload.extras}.items()
        }
        upload = upload._replace(delta=sent.pop("delta"), extras=sent)
    return upload


def _changed(
    kind: str, factor: float, mine: Tensor, theirs: Tensor, draw: torch.Generator
) -> Tensor:
    """Return a vector of an upload as a fault leaves it."""
    if kind in ("nan", "infinite"):
        broken = mine.clone()
        at = int(torch.randint(len(mine), (), generator=draw))
        broken[at] = torch.nan if kind == "nan" else torch.inf
        return broken
    if kind in ("noise", "wrong"):
        random = torch.randn(mine.shape, generator=draw).to(mine)
        random *= factor * mine.norm() / random.norm().clamp_min(1e-30)
        return mine + random if kind == "noise" else random
    if kind == "manipulated":
        return -factor * theirs
    return -factor * mine if kind == "flipped" else factor * mine


# --- wrong labels --------------------------------------------------------------------------------


def examples_with_wrong_labels(world: World) -> Examples:
    """Return the training set for the engine: if labels may be wrong, a second, mislabelled copy.

    The copy of row i is row i plus the number of samples.
    """
    train = world.dataset.train
    if world.config.faults.labels is None:
        return train
    reversed_labels = world.dataset.classes - 1 - train.y
    return Examples(torch.cat([train.x] * 2), torch.cat([train.y, reversed_labels]), train.pixels)


def with_wrong_labels(world: World, cohort: Cohort) -> Cohort:
    """Return the cohort in which devices with wrong labels train on the mislabelled copy."""
    fault = world.config.faults.labels
    if fault is None:
        return cohort
    struck = {place for place, _ in _struck(world, cohort, "labels", fault)}
    copy = len(world.dataset.train.y)

    def seen(rows: Indices, place: int) -> Indices:
        return rows + copy if place in struck else rows

    def batches(place: int) -> list[Indices]:
        return [seen(rows, place) for rows in cohort.batches[place]]

    def shard(place: int) -> Indices:
        return seen(cohort.shards[place], place)

    count = len(cohort.devices)
    shards = LazySequence(count, shard) if cohort.shards else ()
    draws = cohort.draws and cohort.draws._replace(wrong_labels=True)
    return cohort._replace(batches=LazySequence(count, batches), shards=shards, draws=draws)
