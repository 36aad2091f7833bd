"""The paper's numbers, read from the packaged tables."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

NAMES = {
    "MNIST": "mnist",
    "FMNIST": "fmnist",
    "Fashion-MNIST": "fmnist",
    "SVHN": "svhn",
    "CIFAR-10": "cifar10",
    "CIFAR10": "cifar10",
    "CIFAR-100": "cifar100",
    "CIFAR100": "cifar100",
    "TinyImageNet": "tinyimagenet",
    "AG News": "agnews",
}
"""Our names of the paper's data sets."""
ALGORITHMS = {
    "FedAvg": "fedavg",
    "FedProx": "fedprox",
    "MOON": "moon",
    "SCAFFOLD": "scaffold-authors",
    "FedACG": "fedacg",
}
"""Our names of the paper's algorithms, as its authors ran them."""


class PublishedAccuracy(NamedTuple):
    """One accuracy of the accuracy tables; ``std`` is over the paper's three seeds."""

    dataset: str
    overlap: float
    alpha: float
    algorithm: str
    transition: int
    method: str
    accuracy: float
    std: float


@cache
def table(file: str) -> tuple[dict[str, str], ...]:
    """Return the rows of one of the paper's tables as they stand."""
    text = (resources.files("chang2025") / "reference" / file).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def method_name(name: str) -> str:
    """Return our name of a way to start a session.

    >>> method_name("proposed"), method_name("average")
    ('warm_start', 'average')
    """
    return "warm_start" if name == "proposed" else name


@cache
def accuracies(file: str) -> tuple[PublishedAccuracy, ...]:
    """Return an accuracy table."""
    return tuple(
        PublishedAccuracy(
            NAMES[row["dataset"]],
            float(row["overlap"]),
            float(row["alpha"]),
            ALGORITHMS[row["algorithm"]],
            int(row["transition"]),
            method_name(row["method"]),
            float(row["accuracy"]),
            float(row["std"]),
        )
        for row in table(file)
    )
