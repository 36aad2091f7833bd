"""Why a number of ours is far from the paper's, as far as we know: a reviewed table.

A cause is named only where something shows it; everything else is unexplained.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

UNEXPLAINED = "unexplained"


class Cause(NamedTuple):
    """What explains the differences of the rows that all patterns fit."""

    text: str
    study: str = "*"
    dataset: str = "*"
    setting: str = "*"
    algorithm: str = "*"
    column: str = "*"


CAUSES = (
    Cause(
        "the paper's row repeats its FedProx row of CIFAR-100, Half",
        study="first10-two-shard-partial-overlap",
        dataset="mnist",
        setting="Partial-Overlap",
        algorithm="fedprox",
    ),
    Cause(
        "the paper's row repeats its FedAvg row",
        study="first10-two-shard-partial-overlap",
        setting="Two-Shard",
        algorithm="fedprox",
    ),
    Cause(
        "the paper's rows of FedAvg, FedProx and MOON are one series, shifted by a transition",
        study="first10-100-clients",
    ),
    Cause(
        "another set-up: 10,000 of 73,257 images, 20 devices, 25 of 200 rounds",
        study="svhn-accuracy",
    ),
    Cause(
        "another set-up: 43,600 of 120,000 texts, 36 devices",
        study="agnews-accuracy",
    ),
    Cause(
        "no trained weights, a part of the data, a few rounds: only shows that the path runs",
        study="cifar10*-accuracy",
    ),
    Cause(
        "no trained weights, a part of the data, a few rounds: only shows that the path runs",
        study="tinyimagenet-accuracy",
    ),
)
"""The first that fits counts."""


def cause_of(study: str, dataset: str, setting: str, algorithm: str, column: str) -> str:
    """Return why a row is far from the paper's.

    >>> cause_of("first10-100-clients", "mnist", "Partial-Overlap", "moon", "previous")[:11]
    "the paper's"
    >>> cause_of("mnist-accuracy", "mnist", "overlap 0.9, alpha 0.3", "moon", "previous")
    'unexplained'
    """
    for cause in CAUSES:
        patterns = (cause.study, cause.dataset, cause.setting, cause.algorithm, cause.column)
        values = (study, dataset, setting, algorithm, column)
        if all(map(fnmatch, values, patterns)):
            return cause.text
    return UNEXPLAINED
