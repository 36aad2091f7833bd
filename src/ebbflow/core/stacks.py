"""Vectors of a long past in matrices, so that each is read once and all are used in one pass.

Read one by one, a thousand past sessions take longer than a small session's training: each vector
costs a few calls, however short it is. Stacked, they cost a pass over memory.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from operator import is_, is_not

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.types import ModelState, PastSession

LONG = 32
"""Up to so many past sessions, vectors are read one by one, and nothing of them is held here."""
STACKED_BYTES = 64 * 2**20
"""What all stacks of a process hold together at most."""
_ROWS = 512
_BLOCK_BYTES = 2**22  # of a block in double precision: more rows cost less each, up to a cache


def is_long(past: Sequence[object]) -> bool:
    """Whether so many past sessions are read in stacks."""
    return len(past) > LONG


class StackRoom:
    """Bytes that are left for stacks."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        self._lock = threading.RLock()  # a block may be given back while another is taken

    def taken(self, size: int) -> bool:
        """Take so many bytes, if they are left."""
        with self._lock:
            if size > self.left:
                return False
            self.left -= size
            return True

    def give_back(self, size: int) -> None:
        """Take note that so many bytes are free again."""
        with self._lock:
            self.left += size


ROOM = StackRoom(STACKED_BYTES)


class Stack:
    """One vector of each past session, in blocks of rows that are filled as the history grows.

    ``read`` returns a session's vector. Rows are in double precision, as all sums over them are.
    What finds no room is read again whenever it is needed.
    """

    def __init__(self, read: Callable[[PastSession], Tensor], room: StackRoom = ROOM) -> None:
        self._read, self._room = read, room
        self._entries: list[PastSession] = []
        self._blocks: list[Tensor] = []
        self._length, self._step = 0, 0  # of a vector, and the rows of a block, once they are known

    def blocks(
        self, entries: Sequence[PastSession], places: Sequence[int] | None = None
    ) -> Iterator[Tensor]:
        """Yield the vectors of the entries at these places, a few rows at a time, in their order.

        Without ``places``, those of all entries. Rows are not to be changed, and the next ones may
        take their place. How many come together depends on nothing but the length of a vector.
        """
        places = range(len(entries)) if places is None else places
        if not places:
            return
        self._hold(entries)
        copies: Tensor | None = None
        for first in range(0, len(places), self._step):
            some = places[first : first + self._step]
            if (held := self._held(some)) is not None:
                yield held
                continue
            if copies is None:
                copies = _mapped(self._step, self._length)
            for copy, place in zip(copies, some, strict=False):
                copy.copy_(self._row(entries, place))
            yield copies[: len(some)]

    def _held(self, places: Sequence[int]) -> Tensor | None:
        """Return the vectors at these places, if they are held and lie beside each other."""
        first, last, count = places[0], places[-1], len(places)
        block, row = divmod(first, self._step)
        in_turn = last - first == count - 1 and row + count <= self._step
        if not in_turn or last >= len(self._entries):
            return None
        return self._blocks[block][row : row + count]

    def _row(self, entries: Sequence[PastSession], place: int) -> Tensor:
        if place >= len(self._entries):
            return self._read(entries[place])
        block, row = divmod(place, self._step)
        return self._blocks[block][row]

    def _hold(self, entries: Sequence[PastSession]) -> None:
        """Hold the vectors of these entries, as far as there is room."""
        # A history mostly grows at its end; what follows an entry that was dropped is read anew.
        same = min(len(self._entries), len(entries))
        if any(map(is_not, self._entries, entries)):
            same = list(map(is_, self._entries, entries)).index(False)
        del self._entries[same:]
        if self._step:
            del self._blocks[-(-same // self._step) :]
        for entry in entries[same:]:
            row = self._read(entry)
            self._length = row.numel()
            self._step = max(1, min(_ROWS, _BLOCK_BYTES // (8 * max(1, self._length))))
            if len(self._entries) == len(self._blocks) * self._step and not self._another():
                return
            block, place = divmod(len(self._entries), self._step)
            self._blocks[block][place] = row
            self._entries.append(entry)

    def _another(self) -> bool:
        """Whether there was room for another block of rows."""
        size = 8 * self._step * self._length
        # A few vectors of many would spare next to nothing.
        if size > self._room.limit // 4 or not self._room.taken(size):
            return False
        block = _mapped(self._step, self._length)
        weakref.finalize(block, self._room.give_back, size)
        self._blocks.append(block)
        return True


def _mapped(rows: int, length: int) -> Tensor:
    """Return a matrix with pages of its own.

    In the heap, what stays and what comes and goes would lie between each other, and leave holes.
    """
    size = rows * length
    if not size:
        return torch.empty(rows, length, dtype=torch.float64)
    pages = mmap(-1, 8 * size)
    return torch.frombuffer(pages, dtype=torch.float64, count=size).view(rows, length)


class PastModels:
    """The final models of past sessions, to be mixed."""

    def __init__(self, room: StackRoom = ROOM) -> None:
        self._stack = Stack(_joined, room)

    def mixture(
        self, past: Sequence[PastSession], places: Sequence[int], weights: Sequence[float]
    ) -> ModelState:
        """Return the weighted sum of the models at these places; no weight is negative.

        Of a short past the models are read one by one. Of a long one, sums are formed by blocks,
        in double precision, too: the result may differ in the last digit.
        """
        if not is_long(places):
            return vector.mix((past[place].model for place in places), weights)
        like = past[places[0]].model
        joined = vector.mix_rows(self._stack.blocks(past, places), weights)
        theta, buffers = torch.split(joined, [len(part) for part in like])
        return ModelState(theta.to(like.theta.dtype), buffers.to(like.buffers.dtype))


def _joined(session: PastSession) -> Tensor:
    theta, buffers = session.model
    return torch.cat([theta, buffers]) if len(buffers) else theta
