"""How methods look: colours that colour-blind readers tell apart, dashes and markers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Look(NamedTuple):
    """How a method is drawn: on light ground, on dark ground, and where there is no colour."""

    light: str
    dark: str
    dash: str
    marker: str


_KNOWN = {
    "learned": Look("#000000", "#ffffff", "solid", "circle"),
    "warm_start": Look("#0072b2", "#56b4e9", "solid", "square"),
    "previous": Look("#d55e00", "#ff9d5c", "dash", "diamond"),
    "average": Look("#00795a", "#2fd3a2", "dot", "triangle-up"),
    "continuous": Look("#a8457c", "#e59cc4", "dashdot", "triangle-down"),
}
_OTHERS = (
    Look("#7a5c00", "#f0e442", "longdash", "cross"),
    Look("#5b3a9e", "#b9a1ff", "longdashdot", "x"),
    Look("#8c2d04", "#ffb08f", "dash", "star"),
    Look("#005f73", "#7fe3f0", "dot", "hexagon"),
)
TOGETHER = Look("#767676", "#9a9a9a", "solid", "circle")
"""Methods that coincide: there was no choice yet."""


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """Return how each method looks; starts that are not ours take what is left, in order.

    >>> looks(["previous", "mine"])["mine"].light
    '#7a5c00'
    """
    own = [method for method in methods if method not in _KNOWN]
    others = {method: _OTHERS[n % len(_OTHERS)] for n, method in enumerate(own)}
    return {method: _KNOWN.get(method) or others[method] for method in methods}
