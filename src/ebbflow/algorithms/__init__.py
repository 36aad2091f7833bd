"""FL algorithms, one file each; `ALGORITHMS` names them."""

from collections.abc import Callable

from ebbflow.algorithms.distillation import distilled
from ebbflow.algorithms.fedacg import fedacg
from ebbflow.algorithms.fedavg import fedavg
from ebbflow.algorithms.fedavgm import fedavgm
from ebbflow.algorithms.feddyn import feddyn
from ebbflow.algorithms.fedopt import fedadam, fedyogi
from ebbflow.algorithms.fedprox import fedprox
from ebbflow.algorithms.moon import moon
from ebbflow.algorithms.scaffold import scaffold
from ebbflow.algorithms.scaffold_authors import scaffold_authors
from ebbflow.core.algorithm import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "scaffold-authors": scaffold_authors,
    "moon": moon,
    "fedacg": fedacg,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "feddyn": feddyn,
}
"""Factories by name; their arguments are the keys of ``[parameters.NAME]``."""

__all__ = ["ALGORITHMS", "distilled"]
