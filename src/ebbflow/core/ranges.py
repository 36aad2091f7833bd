"""The ranges of parameters of algorithms and starts, checked where parameters are set."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A number above zero."""
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Zero or more."""
Decay = Annotated[float, Field(ge=0, lt=1)]
"""From zero to just below one."""
Scale = Annotated[float, Field(ge=0)]
"""Zero or more, infinity included."""
Whole = Annotated[int, Field(ge=1)]
"""A whole number from one on."""
AtLeastTwo = Annotated[int, Field(ge=2)]
"""A whole number from two on."""
Share = Annotated[float, Field(ge=0, le=1)]
"""From zero to one."""
