"""The trimmed mean of every entry (Yin et al., 2018)."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field
from torch import Tensor

from ebbflow.core.aggregation import Aggregation


def trimmed_mean(trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.3) -> Aggregation:
    """Return, of every entry, the mean without the lowest and the highest ``trim`` of the devices.

    It withstands as many malicious devices as are trimmed at one end. Each device counts once.
    """

    def entries(values: Tensor) -> Tensor:
        cut = min(math.ceil(trim * len(values)), (len(values) - 1) // 2)
        return values.sort(0).values[cut : len(values) - cut].mean(0)

    return Aggregation("trimmed_mean", entries=entries)
