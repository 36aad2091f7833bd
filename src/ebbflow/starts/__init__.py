"""Ways to start a session, one file each; `INITIALISERS` names them."""

from collections.abc import Callable
from functools import partial

from ebbflow.core.types import Initialiser, Layout
from ebbflow.starts.average import average
from ebbflow.starts.continuous import continuous
from ebbflow.starts.previous import previous
from ebbflow.starts.warm_start import warm_start

INITIALISERS: dict[str, Callable[[Layout, str, float], Initialiser]] = {
    "warm_start": warm_start,
    "previous": lambda layout, distance, scale: previous(),
    "average": lambda layout, distance, scale: average(),
    "continuous": lambda layout, distance, scale: continuous(),
}
"""Builders by name; each takes the model's layout, the distance's name and R."""

SKETCHED: dict[str, Callable[[Layout, str, float], Initialiser]] = {
    "warm_start": partial(warm_start, sketched=True),
}
"""Those that have a way of their own for ``warm_start.signature = "sketch"``."""

UNIFORM: dict[str, Callable[[Layout, str, float], Initialiser]] = {
    "continuous": lambda layout, distance, scale: continuous(uniform=True),
}
"""Those that have a way of their own for ``continuous.first = "uniform"``."""
