"""From a configuration to sessions: which devices, which samples, how many rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazyMapping
from ebbflow.core.rng import generator
from ebbflow.core.types import Dataset, Indices, Session
from ebbflow.data.churn import Churn, balanced, random_roster
from ebbflow.data.distributions import DISTRIBUTIONS
from ebbflow.data.partition import PARTITIONS, label_groups
from ebbflow.data.pool import Pool
from ebbflow.data.schedule import Presence, Roster, alternating
from ebbflow.data.trace import Cut, from_trace
from ebbflow.data.trace_files import read_trace

POOL = "pool"
KINDS = (*PARTITIONS, POOL, *DISTRIBUTIONS)
"""Every value of ``partition.kind``."""


Shards = Mapping[int, Indices] | Pool
"""The samples of every device, or the pool to draw them from."""


def build_sessions(config: Config, dataset: Dataset, seed: int) -> list[Session]:
    """Return the sessions: their devices, the devices' samples, and the number of rounds."""
    y = dataset.train.y.cpu().numpy()
    shards: Shards
    if config.partition.kind in DISTRIBUTIONS:
        roster, shards = _distributed(config, dataset, y, seed)
    else:
        roster = _roster(config, seed)
        shards = _shards(config, dataset, y, roster, seed)
    tested = set(dataset.test.y.tolist())
    sessions = []
    held = _holdings(shards, y)
    for index, presence in enumerate(roster.sessions, start=1):
        samples, sizes, labels = held(presence.devices)
        if not tested.intersection(labels):
            raise EbbflowError(
                f"session {index} holds the labels {list(labels)}, and the test set of "
                f"{dataset.name} has no sample of any: use a test set that covers them"
            )
        usual = config.pilot.rounds if index <= config.pilot.sessions else config.rounds
        rounds = presence.rounds or usual
        sessions.append(Session(index, presence.devices, rounds, labels, samples, sizes))
    return sessions


Holdings = tuple[Mapping[int, Indices], Mapping[int, int] | None, tuple[int, ...]]
"""The devices' samples, their numbers if samples are drawn on each use, and their labels."""


def _holdings(shards: Shards, y: Indices) -> Callable[[tuple[int, ...]], Holdings]:
    """Return a function that maps devices to what they hold."""

    @cache  # the same devices come back in many sessions
    def held(devices: tuple[int, ...]) -> Holdings:
        if isinstance(shards, Pool):
            sizes = dict.fromkeys(devices, shards.samples)
            return LazyMapping(sizes, shards.draw), sizes, shards.labels_of(devices)
        samples = {device: shards[device] for device in devices}
        return samples, None, tuple(np.unique(y[np.concatenate(list(samples.values()))]).tolist())

    return held


def _roster(config: Config, seed: int) -> Roster:
    choice = config.schedule
    if choice.kind == "groups":
        return alternating(config.sessions, config.partition.device_count)
    cut = Cut(choice.cut, choice.interval, choice.change, choice.min_devices)
    if choice.kind == "trace":
        events = read_trace(Path(choice.file or ""))
        return from_trace(events, cut, sessions=config.sessions, round_time=choice.round_time)
    devices = config.partition.device_count
    stay, back, away = choice.stay, choice.return_probability, choice.away
    if choice.arrivals is None:
        churn = balanced(devices, stay, back, away)
    else:  # a user who sets the rate of arrivals gets exactly these devices
        churn = Churn(choice.arrivals, stay, back, away, initial=devices)
    return random_roster(
        (seed, "schedule"),
        churn,
        sessions=config.sessions,
        cut=cut,
        round_time=choice.round_time,
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
    shards, groups = DISTRIBUTIONS[kind](y, dataset.classes, devices, draw)
    names = tuple(f"d{device}" for device in range(devices))
    sessions = tuple(Presence(groups[index % 2]) for index in range(config.sessions))
    return Roster(names, sessions), dict(enumerate(shards))


def _shards(config: Config, dataset: Dataset, y: Indices, roster: Roster, seed: int) -> Shards:
    """Give every device of the roster its samples, once for the whole run."""
    all_devices = sorted({device for presence in roster.sessions for device in presence.devices})
    every = tuple(range(dataset.classes))
    if config.partition.overlap is None:
        groups = [(all_devices, tuple(label for label in every if (y == label).any()))]
    else:
        first, second = label_groups(dataset.classes, config.partition.overlap)
        if config.schedule.kind == "groups":
            half = config.partition.device_count
            groups = [(all_devices[:half], first), (all_devices[half:], second)]
        else:  # arrivals alternate between the two label sets
            groups = [
                ([device for device in all_devices if device % 2 == 0], first),
                ([device for device in all_devices if device % 2 == 1], second),
            ]
    if config.partition.kind == POOL:
        return Pool(seed, y, groups, config.partition.sample_count)
    partition = PARTITIONS[config.partition.kind]
    shards: dict[int, Indices] = {}
    for number, (devices, labels) in enumerate(groups):
        if devices:
            draw = generator(seed, "partition", number)
            parts = partition(y, labels, len(devices), config.partition.alpha, draw)
            shards |= dict(zip(devices, parts, strict=True))
    return shards
