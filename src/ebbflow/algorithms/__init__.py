"""FL algorithms, one file each; `ALGORITHMS` lists them.

Factories are imported on use, so that reading a configuration does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ebbflow.core.registry import RatePair, RegisteredAlgorithm, Registry

if TYPE_CHECKING:
    from ebbflow.core.algorithm import Algorithm

ALGORITHMS: Registry[RegisteredAlgorithm[Algorithm]] = Registry("algorithm")
"""Algorithms by name; the arguments of a factory are the keys of ``[parameters.NAME]``."""


def register_algorithm(
    name: str,
    factory: Callable[..., Algorithm] | str,
    *,
    vectors: int = 1,
    rates: Mapping[str, RatePair] | None = None,
) -> None:
    """Register an algorithm under a name.

    Args:
        name: Its name in configurations and on the command line.
        factory: Returns the algorithm; its arguments, which all need defaults and annotations, are
            the keys of ``[parameters.NAME]``. May also be ``"package.module:function"``.
        vectors: Parameter vectors in an upload and in a broadcast, including the model.
        rates: First rate and floor by data set, where they differ from the data set's defaults.
    """
    ALGORITHMS.register(RegisteredAlgorithm(name, factory, vectors, rates or {}))


# The authors published these rates under the name SCAFFOLD, for the algorithm that is called
# scaffold-authors here; see docs/method.md.
_SCAFFOLD_RATES = {
    "mnist": (0.03, 0.9),
    "fmnist": (0.03, 0.9),
    "svhn": (0.1, 0.9),
    "agnews": (0.05, 0.2),
    "cifar10": (0.3, 0.9),
    "cifar100": (0.4, 0.9),
    "tinyimagenet": (0.5, 0.9),
}

register_algorithm("fedavg", "ebbflow.algorithms.fedavg:fedavg")
register_algorithm("fedprox", "ebbflow.algorithms.fedprox:fedprox")
register_algorithm(
    "scaffold", "ebbflow.algorithms.scaffold:scaffold", vectors=2, rates=_SCAFFOLD_RATES
)
register_algorithm(
    "scaffold-authors",
    "ebbflow.algorithms.scaffold_authors:scaffold_authors",
    rates={**_SCAFFOLD_RATES, "digits": (0.1, 0.9)},
)
register_algorithm("moon", "ebbflow.algorithms.moon:moon", rates={"svhn": (0.01, 0.2)})
register_algorithm("fedacg", "ebbflow.algorithms.fedacg:fedacg")
register_algorithm("fedavgm", "ebbflow.algorithms.fedavgm:fedavgm")
register_algorithm("fedadam", "ebbflow.algorithms.fedopt:fedadam")
register_algorithm("fedyogi", "ebbflow.algorithms.fedopt:fedyogi")
register_algorithm("feddyn", "ebbflow.algorithms.feddyn:feddyn")
