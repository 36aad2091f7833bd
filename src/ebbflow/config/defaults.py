"""Defaults by data set: the paper's set-up for its seven data sets, ours for the others."""

from __future__ import annotations

from typing import NamedTuple

from ebbflow.core.registry import RatePair


class DatasetDefaults(NamedTuple):
    """The defaults for one data set; ``rates`` are the first rate and its floor."""

    rounds: int
    devices: int
    batch: int
    model: str
    rates: RatePair
    scale: float = 10.0
    kl: float = 1.0

    @property
    def parameters(self) -> dict[str, dict[str, float]]:
        """The starts' parameters that depend on the data set."""
        return {"warm_start": {"scale": self.scale}, "continuous": {"kl": self.kl}}


# The paper's set-up and its authors' published rates for its seven data sets, ours for digits and
# for a user's own data. `ebbflow.algorithms` has the rates of algorithms that need others.
SETTINGS = {
    "mnist": DatasetDefaults(50, 100, 128, "softmax", (0.001, 0.6)),
    "fmnist": DatasetDefaults(50, 100, 128, "softmax", (0.003, 0.3)),
    "svhn": DatasetDefaults(200, 100, 128, "cnn", (0.005, 0.2)),
    "tinyimagenet": DatasetDefaults(200, 100, 128, "resnet34", (0.2, 0.5)),
    "cifar10": DatasetDefaults(150, 100, 128, "resnet18", (0.05, 0.5)),
    "cifar100": DatasetDefaults(150, 100, 128, "resnet18", (0.1, 0.5)),
    "agnews": DatasetDefaults(100, 100, 128, "embedding", (0.005, 0.2), scale=800.0, kl=0.5),
    "digits": DatasetDefaults(20, 20, 16, "softmax", (0.01, 0.5)),
}
OWN_DATA = DatasetDefaults(50, 20, 32, "softmax", (0.01, 0.5))
