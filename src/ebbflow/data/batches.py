"""Which rows a device trains on in each local step of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ebbflow.core.types import Indices

StepRule = Literal["one_pass", "each_step"]
"""``one_pass``: one shuffled pass over the device's samples, cut short after e batches, so
min(e, ceil(n/B)) steps, the last perhaps smaller (the authors' code). ``each_step``: exactly e
steps, each a fresh draw of min(B, n) samples without replacement (the paper's text)."""


def draw_steps(draw: np.random.Generator, steps: int | Sequence[int]) -> int:
    """Return a device's number of local steps: fixed, or drawn from a range, ends included."""
    return steps if isinstance(steps, int) else int(draw.integers(steps[0], steps[1] + 1))


def local_batches(
    draw: np.random.Generator, shard: Indices, steps: int, batch: int, rule: StepRule
) -> tuple[Indices, ...]:
    """Return the row numbers of each local step.

    >>> shard = np.arange(300)
    >>> draw = np.random.default_rng(0)
    >>> [len(rows) for rows in local_batches(draw, shard, 5, 128, "one_pass")]
    [128, 128, 44]
    >>> [len(rows) for rows in local_batches(draw, shard, 5, 128, "each_step")]
    [128, 128, 128, 128, 128]
    """
    if rule == "each_step":
        return tuple(shard[draw.permutation(len(shard))[:batch]] for _ in range(steps))
    shuffled = shard[draw.permutation(len(shard))]
    return tuple(shuffled[at : at + batch] for at in range(0, len(shard), batch)[:steps])
