"""Malicious devices against every aggregation: what is left of the accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ebbflow import experiment
from ebbflow.aggregation import AGGREGATIONS
from ebbflow.config.merge import Layers

ATTACKS: dict[str, dict[str, Any]] = {
    "sign flip": {"faults.flipped.factor": 4.0},
    "noise": {"faults.noise.factor": 10.0},
    "label flip": {"faults.labels.rate": 1.0},
    "inner product": {"faults.manipulated.factor": 4.0},
}
"""What malicious devices do, in settings: their share is added to them."""
SHARES = (0.1, 0.2, 0.3)
SETTING: dict[str, Any] = {
    "dataset": "mnist",
    "methods": ["previous"],
    "sessions": 2,
    "rounds": 30,
    "partition.devices": 50,
    "partition.overlap": 1.0,
    "partition.alpha": 1.0,
    "data.limit_train": 20_000,
}


class Attacked(NamedTuple):
    """The accuracy after the last round, in percent, under each aggregation."""

    attack: str
    share: float
    accuracies: tuple[float, ...]


def attacked(seeds: Sequence[int], **changes: Any) -> list[Attacked]:
    """Return the accuracies without malicious devices, then under every attack and share."""
    setting = {**SETTING, "seeds": list(seeds), **changes}
    found = [Attacked("none", 0.0, _accuracies(setting))]
    for attack, keys in ATTACKS.items():
        kind = next(iter(keys)).split(".")[1]
        found += [
            Attacked(
                attack, share, _accuracies({**setting, **keys, f"faults.{kind}.devices": share})
            )
            for share in SHARES
        ]
    return found


def _accuracies(setting: dict[str, Any]) -> tuple[float, ...]:
    return tuple(_accuracy({**setting, "aggregation.rule": rule}) for rule in AGGREGATIONS)


def _accuracy(keys: dict[str, Any]) -> float:
    layers = Layers()
    for key, value in keys.items():
        layers.add_key(key, value, "the attack")
    config = layers.config()
    rounds = experiment.run(config).rounds
    return fmean(r.accuracy for r in rounds if r.round == config.rounds)
