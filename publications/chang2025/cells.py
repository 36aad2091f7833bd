"""Cells: single runs that tables and figures share, each with a name.

A cell is its configuration. Its digest covers every setting that may change a result, but not how
or where the work is done, or which numbers are read off the result later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ebbflow.config.defaults import SETTINGS
from ebbflow.config.merge import Layers
from ebbflow.config.paper_rows import PaperRow, settings
from ebbflow.config.resolved import Config
from ebbflow.sweeps.digests import digest

BEHAVIOUR = "authors-code"
"""The reading of the paper that is run: what its authors' code does."""
METHODS = ("warm_start", "continuous", "previous", "average")
WITHOUT_CONTINUOUS = ("warm_start", "previous", "average")
"""The starts of the appendix, and of AG News, where the paper has no Continuous."""
TRAINING_SAMPLES = {
    "mnist": 60_000,
    "fmnist": 60_000,
    "svhn": 73_257,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "tinyimagenet": 100_000,
    "agnews": 120_000,
}
"""Training samples of the complete data sets: a cell on fewer is not a full reproduction."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One run: ``values`` are its settings by dotted keys, on top of `BEHAVIOUR`.

    ``needed_samples`` is how many training samples the data set must have at least; ``pretrained``
    cells start from weights that the user has to give; a ``theorem`` cell is made again beside
    Theorem 1 when it is over.
    """

    name: str
    values: Mapping[str, Any]
    needed_samples: int = 0
    pretrained: bool = False
    theorem: bool = False

    @cached_property
    def config(self) -> Config:
        """The resolved configuration."""
        layers = Layers()
        layers.add_preset(BEHAVIOUR)
        for key, value in self.values.items():
            layers.add_key(key, value, f"cell {self.name}")
        return layers.config()

    @cached_property
    def digest(self) -> str:
        """The digest that a result of this cell must have."""
        return digest(self.config)

    @property
    def seed(self) -> int:
        """The cell's only seed."""
        return int(self.values["seeds"][0])

    def with_settings(self, extra: Mapping[str, Any]) -> Cell:
        """Return the cell with settings on top, as for another device."""
        return replace(self, values={**self.values, **extra})

    @property
    def family(self) -> str:
        """The name without the seed: cells that are averaged share it."""
        return self.name.removesuffix(f"-s{self.seed}")


@dataclass(frozen=True)
class DataSplit:
    """How data are split among devices: what a row of a table names besides the algorithm.

    ``devices`` is given only where it is not the number of the paper's tables.
    """

    dataset: str
    kind: str = "dirichlet"
    overlap: float | None = None
    alpha: float | None = None
    devices: int | None = None

    @property
    def name(self) -> str:
        """The beginning of its cells' names.

        >>> DataSplit("mnist", overlap=0.0, alpha=0.3).name, DataSplit("svhn", "half").name
        ('mnist-o0.0-a0.3', 'svhn-half')
        """
        parts = [self.dataset]
        if self.kind != "dirichlet":
            parts.append(self.kind)
        for mark, value in (("o", self.overlap), ("a", self.alpha), ("d", self.devices)):
            if value is not None:
                parts.append(f"{mark}{value}")
        return "-".join(parts)


def make_cell(
    split: DataSplit,
    algorithms: Sequence[str],
    seed: int,
    *,
    methods: Sequence[str] | None = None,
    variant: Mapping[str, Any] | None = None,
    marks: Sequence[str] = (),
    subset: bool = False,
) -> Cell:
    """Return a cell: a table's rows with these algorithms, with ``variant`` on top.

    ``marks`` name the variant; a single algorithm is named as well. ``subset`` allows part of the
    data set.

    >>> make_cell(DataSplit("mnist", overlap=0.0, alpha=0.3), ["fedavg", "moon"], 100).name
    'mnist-o0.0-a0.3-s100'
    """
    usual = (
        WITHOUT_CONTINUOUS if split.kind != "dirichlet" or split.dataset == "agnews" else METHODS
    )
    values: dict[str, Any] = {}
    for algorithm in algorithms:
        values |= settings(
            PaperRow(
                split.dataset,
                split.kind,
                algorithm,
                split.overlap,
                split.alpha,
                split.devices,
            )
        )
    values |= {
        "algorithm": list(algorithms),
        "methods": list(methods or usual),
        "seeds": [seed],
        **(variant or {}),
    }
    model = str(values["model.kind"])
    named = [
        split.name,
        *([model] if model != SETTINGS[split.dataset].model else []),
        *(algorithms if len(algorithms) == 1 else []),
        *marks,
        f"s{seed}",
    ]
    whole = 0 if subset else TRAINING_SAMPLES[split.dataset]
    return Cell("-".join(named), values, whole, not subset and model.startswith("resnet"))
