"""Random generators keyed by names.

Every draw comes from a generator keyed by what the draw is *for* (seed, purpose, session, round,
device) and never by the method that asks. Draws therefore do not depend on the order of execution,
the engine, the block size, the number of workers, resuming, or the other methods of a comparison.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Name = int | str
"""One part of a key: a seed, a purpose, a session, round or device number."""


def _digest(names: tuple[Name, ...], size: int) -> int:
    # JSON keeps the device "3" apart from the round 3, and ("a", "b") from ("a/b",).
    text = json.dumps(names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "little")


def generator(*names: Name) -> np.random.Generator:
    """Return the numpy generator that belongs to ``names``.

    >>> first = generator(100, "batches", 3, 1, 17).integers(1000, size=3)
    >>> again = generator(100, "batches", 3, 1, 17).integers(1000, size=3)
    >>> other = generator(100, "batches", 3, 1, 18).integers(1000, size=3)
    >>> bool((first == again).all()), bool((first == other).all())
    (True, False)
    """
    return np.random.Generator(np.random.Philox(key=_digest(names, 16)))


def torch_generator(*names: Name) -> torch.Generator:
    """Return the torch generator (on the CPU) that belongs to ``names``."""
    import torch  # noqa: PLC0415 - drawing with numpy does not need it

    return torch.Generator().manual_seed(_digest(names, 8) >> 1)
