"""The values that parameters of algorithms and starts may have, checked where they are set."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _infinity(value: Any) -> Any:
    # JSON has no infinity: there it is the word "inf".
    return math.inf if value == "inf" else value


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A number above zero."""
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Zero or more."""
Decay = Annotated[float, Field(ge=0, lt=1)]
"""From zero to just below one."""
Scale = Annotated[float, BeforeValidator(_infinity), Field(ge=0)]
"""Zero or more, infinity included."""
