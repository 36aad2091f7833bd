"""Which updates are refused, so that one bad device stops nobody.

An update is refused if it is not finite, or if its norm is too many times the median of the round.
The round is then, bit by bit, the one in which the refused devices had not taken part.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from ebbflow.config.schema import GuardSettings
from ebbflow.core.aggregation import is_finite
from ebbflow.core.algorithm import Upload

NOT_FINITE = "not finite"
TOO_LARGE = "too large"


class LeftOut(NamedTuple):
    """Participants that a round went without; it is ``abandoned`` if too few were left."""

    round: int
    devices: tuple[int, ...]
    reasons: tuple[str, ...]
    abandoned: bool = False


def refusals(uploads: Mapping[int, Upload | None], guard: GuardSettings) -> dict[int, str]:
    """Return why updates are refused, by place; None is the update of a device that diverged."""
    norms = {
        place: float((upload.delta / upload.samples).double().norm())
        for place, upload in uploads.items()
        if upload is not None and is_finite(upload)
    }
    refused = {place: NOT_FINITE for place in uploads if place not in norms}
    if guard.norm is not None and norms:
        most = guard.norm * median(norms.values())
        refused |= {place: TOO_LARGE for place, norm in norms.items() if norm > most}
    return refused


def is_abandoned(kept: int, participants: int, guard: GuardSettings) -> bool:
    """Whether too few updates are left for a round to count."""
    return kept < max(1, guard.quorum * participants)
