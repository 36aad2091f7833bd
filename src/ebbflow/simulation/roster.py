"""From a configuration to sessions: which devices, which samples, how many rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ebbflow.config.resolved import AUTO, NATURAL, Config
from ebbflow.config.schedules import random_times, scheduled_trace, trace_times, trace_warnings
from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazyMapping, LazySequence
from ebbflow.core.rng import generator
from ebbflow.core.types import Dataset, Indices, Session
from ebbflow.data.churn import Churn, balanced, random_roster
from ebbflow.data.distributions import DISTRIBUTIONS
from ebbflow.data.owners import (
    natural_shards,
    numbers_by_name,
    owner_warnings,
    refuse_untested,
    renumbered,
    returning_for_ever,
    taking_turns,
)
from ebbflow.data.partition import PARTITIONS, label_groups
from ebbflow.data.pool import Pool
from ebbflow.data.schedule import Presence, Roster, alternating
from ebbflow.data.traces.trace import from_trace
from ebbflow.simulation.plan_checks import PlanCheck

POOL = "pool"
KINDS = (*PARTITIONS, POOL, NATURAL, *DISTRIBUTIONS, AUTO)
"""Every value of ``partition.kind``."""


Shards = Mapping[int, Indices] | Pool
"""The samples of every device, or the pool to draw them from."""
RECENT = 4
"""Sessions that stay as they were built; the others are built again when they are asked for."""


class Plan(NamedTuple):
    """The sessions of a run under one seed, the names of all devices, and what is odd about them.

    ``names[k]`` is what device k is called, where devices have names; ``warnings`` are sentences
    for the user.
    """

    sessions: Sequence[Session]
    names: Sequence[str]
    warnings: tuple[str, ...] = ()


def build_sessions(config: Config, dataset: Dataset, seed: int) -> Sequence[Session]:
    """Return the sessions: their devices, the devices' samples, and the number of rounds."""
    return plan_sessions(config, dataset, seed).sessions


def partition_kind(config: Config, dataset: Dataset) -> str:
    """Return how samples are divided: ``auto`` depends on whether they have owners."""
    if config.partition.kind != AUTO:
        return config.partition.kind
    return "dirichlet" if dataset.train.device is None else NATURAL


def plan_sessions(config: Config, dataset: Dataset, seed: int) -> Plan:
    """Return the sessions and the devices' names.

    A session is built when it is asked for, so that memory does not grow with what all of them
    hold.
    """
    y = dataset.train.kinds.cpu().numpy()
    shards: Shards
    warnings: list[str] = [*trace_warnings(config.schedule)]
    kind = partition_kind(config, dataset)
    if kind == NATURAL:
        roster, shards = _natural(config, dataset, seed)
        warnings += owner_warnings(dataset, list(shards), roster.sessions)
    elif kind in DISTRIBUTIONS:
        roster, shards = _distributed(config, dataset, y, seed)
    else:
        roster = _roster(config, seed)
        shards = _shards(config, dataset, y, roster, seed)
    labels_of = lru_cache(RECENT)(_labels_of(shards, y, dataset.kind_count))
    tested = set(dataset.test.kinds.tolist())
    check = PlanCheck(dataset, config.sessions, config.pilot.sessions)
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    labels: list[tuple[int, ...]] = []
    for index, presence in enumerate(roster.sessions, start=1):
        held = labels_of(presence.devices)
        labels.append(known.setdefault(held, held))  # one tuple for all sessions with these labels
        check.note(index, presence.devices, held)
        if not tested.intersection(held):
            raise EbbflowError(
                f"session {index} holds the labels {list(held)}, and the test set of "
                f"{dataset.name} has no sample of any: use a test set that covers them"
            )

    @lru_cache(RECENT)
    def session(place: int) -> Session:
        presence = roster.sessions[place]
        usual = config.pilot.rounds if place < config.pilot.sessions else config.rounds
        samples, sizes = _holdings(shards, presence.devices)
        rounds = presence.rounds or usual
        return Session(place + 1, presence.devices, rounds, labels[place], samples, sizes)

    warnings += check.sentences()
    named = kind == NATURAL or config.schedule.kind == "trace"
    names = roster.names if named else ()
    return Plan(LazySequence(len(roster.sessions), session), names, tuple(warnings))


def _natural(config: Config, dataset: Dataset, seed: int) -> tuple[Roster, dict[int, Indices]]:
    """Give every owner its own samples, and say who is here when."""
    shards = natural_shards(dataset)
    owners, choice = list(shards), config.schedule
    sessions: Sequence[Presence]
    if choice.kind == "groups":
        sessions = taking_turns(owners, config.sessions, config.partition.devices)
    elif choice.kind == "trace":
        roster = _roster(config, seed)
        numbers = numbers_by_name(roster.names, dataset, owners)
        sessions = renumbered(roster, numbers)
    else:
        _, _, stay, away = random_times(choice)
        churn = returning_for_ever(len(owners), stay, away)
        roster = _random(config, churn, seed)
        sessions = renumbered(roster, dict(enumerate(owners)))
    if config.evaluation in ("devices", AUTO):  # before anything is trained
        refuse_untested(dataset, sessions)
    return Roster(dataset.devices, sessions), shards


def _holdings(
    shards: Shards, devices: tuple[int, ...]
) -> tuple[Mapping[int, Indices], Mapping[int, int] | None]:
    """Return the devices' samples, and their numbers if samples are drawn on each use."""
    if isinstance(shards, Pool):
        sizes = dict.fromkeys(devices, shards.samples)
        return LazyMapping(sizes, shards.draw), sizes
    return {device: shards[device] for device in devices}, None


def _labels_of(
    shards: Shards, y: Indices, classes: int
) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return a function that maps devices to the labels that any of them holds."""
    if isinstance(shards, Pool):
        return shards.labels_of
    # Each device's labels are found once, and not again in each of its sessions.
    held = np.zeros((max(shards) + 1, classes), dtype=bool)
    for device, rows in shards.items():
        held[device, y[rows]] = True

    def labels_of(devices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.flatnonzero(held[list(devices)].any(axis=0)).tolist())

    return labels_of


def _roster(config: Config, seed: int) -> Roster:
    choice = config.schedule
    if choice.kind == "groups":
        return alternating(config.sessions, config.partition.device_count)
    if choice.kind == "trace":
        trace = scheduled_trace(choice)
        times = trace_times(choice, trace)
        sessions, round_time = config.sessions, times.round_time
        return from_trace(trace.events, times.cut, sessions=sessions, round_time=round_time)
    devices = config.partition.device_count
    _, _, stay, away = random_times(choice)
    back = choice.return_probability
    if choice.arrivals is None:
        churn = balanced(devices, stay, back, away)
    else:  # a user who sets the rate of arrivals gets exactly these devices
        churn = Churn(choice.arrivals, stay, back, away, initial=devices)
    return _random(config, churn, seed)


def _random(config: Config, churn: Churn, seed: int) -> Roster:
    cut, round_time, _, _ = random_times(config.schedule)
    return random_roster(
        (seed, "schedule"), churn, sessions=config.sessions, cut=cut, round_time=round_time
    )


def _distributed(
    config: Config, dataset: Dataset, y: Indices, seed: int
) -> tuple[Roster, dict[int, Indices]]:
    """Divide samples and devices by a rule that also says which devices take turns."""
    kind = config.partition.kind
    if config.schedule.kind != "groups":
        raise EbbflowError(
            f'partition.kind = "{kind}" has two groups of devices that take turns, which '
            f'schedule.kind = "{config.schedule.kind}" does not: set that to "groups", or choose '
            f"{' or '.join(PARTITIONS)} for partition.kind"
        )
    devices = config.partition.device_count
    draw = generator(seed, "partition", kind)
    shards, groups = DISTRIBUTIONS[kind](y, dataset.kind_count, devices, draw)
    names = tuple(f"d{device}" for device in range(devices))
    sessions = tuple(Presence(groups[index % 2]) for index in range(config.sessions))
    return Roster(names, sessions), dict(enumerate(shards))


def _shards(config: Config, dataset: Dataset, y: Indices, roster: Roster, seed: int) -> Shards:
    """Give every device of the roster its samples, once for the whole run."""
    if config.partition.overlap is None:
        every = range(dataset.kind_count)
        labels = [tuple(label for label in every if (y == label).any())]
    else:
        labels = list(label_groups(dataset.kind_count, config.partition.overlap))
    group_of = _group_rule(config)
    if config.partition.kind == POOL:
        return Pool(seed, y, labels, group_of, config.partition.sample_count)
    members: list[list[int]] = [[] for _ in labels]
    for device in sorted({d for presence in roster.sessions for d in presence.devices}):
        members[group_of(device)].append(device)
    partition = PARTITIONS[partition_kind(config, dataset)]
    shards: dict[int, Indices] = {}
    for number, devices in enumerate(members):
        if devices:
            draw = generator(seed, "partition", number)
            parts = partition(y, labels[number], len(devices), config.partition.alpha, draw)
            shards |= dict(zip(devices, parts, strict=True))
    return shards


def _group_rule(config: Config) -> Callable[[int], int]:
    """Return the rule that says which of the label groups a device belongs to."""
    if config.partition.overlap is None:
        return lambda device: 0
    if config.schedule.kind == "groups":
        half = config.partition.device_count
        return lambda device: int(device >= half)
    return lambda device: device % 2  # arrivals alternate between the two label sets
