"""Ways to make one update of those that devices sent, one file each; `AGGREGATIONS` lists them.

Factories are imported on use, so that reading a configuration does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ebbflow.core.registry import Registered, Registry

if TYPE_CHECKING:
    from ebbflow.core.aggregation import Aggregation

AGGREGATIONS: Registry[Registered[Aggregation]] = Registry("aggregation")
"""Aggregations by name; the arguments of a factory are the keys of ``[parameters.NAME]``."""


def register_aggregation(name: str, factory: Callable[..., Aggregation] | str) -> None:
    """Register an aggregation under a name.

    Args:
        name: Its name in ``aggregation.rule``.
        factory: Returns the aggregation; its arguments, which all need defaults and annotations,
            are the keys of ``[parameters.NAME]``. May also be ``"package.module:function"``.
    """
    AGGREGATIONS.register(Registered(name, factory))


register_aggregation("mean", "ebbflow.aggregation.mean:mean")
register_aggregation("median", "ebbflow.aggregation.median:median")
register_aggregation("trimmed_mean", "ebbflow.aggregation.trimmed_mean:trimmed_mean")
register_aggregation("multi_krum", "ebbflow.aggregation.multi_krum:multi_krum")
register_aggregation("clipped_mean", "ebbflow.aggregation.clipped_mean:clipped_mean")
register_aggregation("trust", "ebbflow.aggregation.trust:trust")
