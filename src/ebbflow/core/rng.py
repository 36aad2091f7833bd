"""Random generators keyed by names.

Every draw comes from a generator keyed by what the draw is *for* (seed, purpose, session, round,
device) and never by the method that asks. Draws therefore do not depend on the order of execution,
the engine, the block size, the number of workers, resuming, or the other methods of a comparison.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Name = int | str
"""One part of a key: a seed, a purpose, a session, round or device number."""


def _digest(names: tuple[Name, ...], size: int) -> bytes:
    # JSON keeps the device "3" apart from the round 3, and ("a", "b") from ("a/b",).
    return hashlib.blake2b(json.dumps(names).encode(), digest_size=size).digest()


class _Key(ISeedSequence):
    """Gives Philox its key: passed one in another way, numpy asks the system for entropy first."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[np.uint64]:
        return np.frombuffer(self._digest, dtype="<u8")


def generator(*names: Name) -> np.random.Generator:
    """Return the numpy generator that belongs to ``names``.

    >>> first = generator(100, "batches", 3, 1, 17).integers(1000, size=3)
    >>> again = generator(100, "batches", 3, 1, 17).integers(1000, size=3)
    >>> other = generator(100, "batches", 3, 1, 18).integers(1000, size=3)
    >>> bool((first == again).all()), bool((first == other).all())
    (True, False)
    """
    # numpy's stubs do not know that it takes any `ISeedSequence`, as its documentation says.
    key: Any = _Key(_digest(names, 16))
    return np.random.Generator(np.random.Philox(key))


class Generators:
    """The generators of ``(*names, 0)``, ``(*names, 1)``, ..., of which one at a time is used.

    Setting this one to another's state takes a quarter of the time of making one: that counts where
    a million devices have a generator each.

    >>> lives = Generators(100, "life")
    >>> lives.become(7)
    >>> lives.draw.random() == generator(100, "life", 7).random()
    True
    """

    def __init__(self, *names: Name) -> None:
        # What generator(*names, member) hashes is this text, the member, and a bracket.
        before = json.dumps((*names, 0)).removesuffix("0]")
        self._hash = hashlib.blake2b(before.encode(), digest_size=16)
        self._bits = np.random.Philox(key=0)
        self.draw = np.random.Generator(self._bits)

    def become(self, member: int, drawn: int = 0) -> None:
        """Make ``draw`` the generator of a member after so many numbers were drawn from it."""
        digest = self._hash.copy()
        digest.update(b"%d]" % member)
        key = int.from_bytes(digest.digest(), "little")
        # Philox makes its numbers four at a time.
        blocks, rest = divmod(drawn, 4)
        # numpy says that it takes arrays here; it takes any numbers, and arrays take longer.
        state: Any = {
            "bit_generator": "Philox",
            "state": {"counter": (blocks, 0, 0, 0), "key": (key & (2**64 - 1), key >> 64)},
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        self._bits.state = state
        if rest:
            self._bits.random_raw(rest, output=False)

    def drawn(self) -> int:
        """Return how many numbers of 64 bits were drawn from the present member's generator."""
        state: Any = self._bits.state
        return 4 * (int(state["state"]["counter"][0]) - 1) + int(state["buffer_pos"])


def torch_generator(*names: Name) -> torch.Generator:
    """Return the torch generator (on the CPU) that belongs to ``names``."""
    import torch  # noqa: PLC0415 - drawing with numpy does not need it

    return torch.Generator().manual_seed(int.from_bytes(_digest(names, 8), "little") >> 1)
