"""FL algorithms, one file each; `ALGORITHMS` names them."""

from collections.abc import Callable

from ebbflow.algorithms.fedavg import fedavg
from ebbflow.core.algorithm import Algorithm

ALGORITHMS: dict[str, Callable[[], Algorithm]] = {"fedavg": fedavg}
