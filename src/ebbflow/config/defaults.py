"""Defaults that depend on the data set: the paper's set-up for its seven, ours for the others."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """What a data set is trained with."""

    rounds: int
    devices: int
    batch: int
    scale: float
    kl: float
    model: str


# The paper's set-up for its seven data sets, ours for digits and for own data.
SETTINGS = {
    "mnist": Setting(50, 100, 128, 10.0, 1.0, "softmax"),
    "fmnist": Setting(50, 100, 128, 10.0, 1.0, "softmax"),
    "svhn": Setting(200, 100, 128, 10.0, 1.0, "cnn"),
    "tinyimagenet": Setting(200, 100, 128, 10.0, 1.0, "resnet34"),
    "cifar10": Setting(150, 100, 128, 10.0, 1.0, "resnet18"),
    "cifar100": Setting(150, 100, 128, 10.0, 1.0, "resnet18"),
    "agnews": Setting(100, 100, 128, 800.0, 0.5, "embedding"),
    "digits": Setting(20, 20, 16, 10.0, 1.0, "softmax"),
}
OWN_DATA = Setting(50, 20, 32, 10.0, 1.0, "softmax")

# First rate and floor, the authors' published values; "" stands for every other algorithm.
RATES: dict[str, dict[str, tuple[float, float]]] = {
    "mnist": {"": (0.001, 0.6), "scaffold": (0.03, 0.9), "scaffold-authors": (0.03, 0.9)},
    "fmnist": {"": (0.003, 0.3), "scaffold": (0.03, 0.9), "scaffold-authors": (0.03, 0.9)},
    "svhn": {
        "": (0.005, 0.2),
        "moon": (0.01, 0.2),
        "scaffold": (0.1, 0.9),
        "scaffold-authors": (0.1, 0.9),
    },
    "agnews": {"": (0.005, 0.2), "scaffold": (0.05, 0.2), "scaffold-authors": (0.05, 0.2)},
    "cifar10": {"": (0.05, 0.5), "scaffold": (0.3, 0.9), "scaffold-authors": (0.3, 0.9)},
    "cifar100": {"": (0.1, 0.5), "scaffold": (0.4, 0.9), "scaffold-authors": (0.4, 0.9)},
    "tinyimagenet": {"": (0.2, 0.5), "scaffold": (0.5, 0.9), "scaffold-authors": (0.5, 0.9)},
    "digits": {"": (0.01, 0.5), "scaffold-authors": (0.1, 0.9)},
}
OWN_RATES = {"": (0.01, 0.5)}
