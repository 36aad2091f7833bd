"""Vectors of a long past in matrices, so that each is read once and all are used in one pass.

Read one by one, a thousand past sessions take longer than a small session's training: each vector
costs a few calls, however short it is. Stacked, they cost a pass over memory.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.types import ModelState, PastSession

LONG = 32
"""Up to so many past sessions, vectors are read one by one, and nothing of them is held here."""
STACKED_BYTES = 64 * 2**20
"""What all stacks of a process hold together at most."""
_ROWS = 256
_BLOCK_BYTES = 2**21  # of a block in double precision: it should fit into a cache


def is_long(past: Sequence[object]) -> bool:
    """Whether so many past sessions are read in stacks."""
    return len(past) > LONG


class Room:
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


ROOM = Room(STACKED_BYTES)


class Stack:
    """One vector of each past session, in blocks of rows that are filled as the history grows.

    ``read`` returns a session's vector. What finds no room is read again whenever it is needed.
    """

    def __init__(self, read: Callable[[PastSession], Tensor], room: Room = ROOM) -> None:
        self._read, self._room = read, room
        self._entries: list[PastSession] = []
        self._blocks: list[Tensor] = []

    def blocks(
        self, entries: Sequence[PastSession], places: Sequence[int] | None = None
    ) -> Iterator[Tensor]:
        """Yield the vectors of the entries at these places, a few rows at a time, in their order.

        Without ``places``, those of all entries. How many rows come together depends on nothing but
        the length of a vector. They are not to be changed.
        """
        places = range(len(entries)) if places is None else places
        if not places:
            return
        self._hold(entries)
        step = self._step(self._row(entries, places[0]))
        for first in range(0, len(places), step):
            yield self._rows(entries, places[first : first + step])

    def _rows(self, entries: Sequence[PastSession], places: Sequence[int]) -> Tensor:
        first, count = places[0], len(places)
        if self._blocks and places[-1] < len(self._entries):
            block, row = divmod(first, len(self._blocks[0]))
            in_turn = places[-1] - first == count - 1
            if in_turn and row + count <= len(self._blocks[0]):
                return self._blocks[block][row : row + count]
        if count == 1:
            return self._row(entries, first).unsqueeze(0)
        return torch.stack([self._row(entries, place) for place in places])

    def _row(self, entries: Sequence[PastSession], place: int) -> Tensor:
        if place >= len(self._entries):
            return self._read(entries[place])
        block, row = divmod(place, len(self._blocks[0]))
        return self._blocks[block][row]

    def _hold(self, entries: Sequence[PastSession]) -> None:
        """Hold the vectors of these entries, as far as there is room."""
        # A history mostly grows at its end; what follows an entry that was dropped is read anew.
        pairs = enumerate(zip(self._entries, entries, strict=False))
        shorter = min(len(self._entries), len(entries))
        same = next((place for place, (held, entry) in pairs if held is not entry), shorter)
        del self._entries[same:]
        step = len(self._blocks[0]) if self._blocks else 1
        del self._blocks[-(-same // step) :]
        for entry in entries[same:]:
            row = self._read(entry)
            if not self._made_room(row):
                return
            block, place = divmod(len(self._entries), len(self._blocks[0]))
            self._blocks[block][place] = row
            self._entries.append(entry)

    def _made_room(self, row: Tensor) -> bool:
        """Whether there is a block for the next row, perhaps a new one."""
        if self._blocks and len(self._entries) < len(self._blocks) * len(self._blocks[0]):
            return True
        step = self._step(row)
        size = step * row.numel() * row.element_size()
        # A few vectors of many would spare next to nothing.
        if size > self._room.limit // 4 or not self._room.taken(size):
            return False
        block = row.new_empty(step, row.numel())
        weakref.finalize(block, self._room.give_back, size)
        self._blocks.append(block)
        return True

    @staticmethod
    def _step(row: Tensor) -> int:
        return max(1, min(_ROWS, _BLOCK_BYTES // (8 * max(1, row.numel()))))


class PastModels:
    """The final models of past sessions, to be mixed."""

    def __init__(self, room: Room = ROOM) -> None:
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
        buffers = len(past[places[0]].model.buffers)
        joined = vector.mix_rows(self._stack.blocks(past, places), weights)
        theta, mixed = torch.split(joined, [len(joined) - buffers, buffers])
        return ModelState(theta, mixed)


def _joined(session: PastSession) -> Tensor:
    theta, buffers = session.model
    return torch.cat([theta, buffers]) if len(buffers) else theta
