"""Device states in a file that is mapped into memory, once they are too many for memory itself.

Control variates and old models are as large as the model, and there is one for every device. What
is mapped counts as the file's: the system keeps as much of it in memory as there is room for.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
import weakref
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.types import State

SLOTS = 32  # places for tensors that the file grows by


class StateFile:
    """Keeps device states in memory up to a limit, and in a mapped file beyond it.

    A place in the file is used again when nothing refers to what was there: tensors are replaced,
    never changed, as everywhere else. The file has no name and vanishes with the process.

    Args:
        limit: Bytes of device states that one method may hold in memory.
        folder: Where the file lies; by default where temporary files do.
    """

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self.bytes = 0
        self._folder = folder
        self._free: dict[int, list[np.ndarray[tuple[int], np.dtype[np.uint8]]]] = defaultdict(list)
        self._lock = threading.Lock()

    def keep(self, before: Mapping[int, State], new: Mapping[int, State]) -> dict[int, State]:
        """Return the states of all devices, the new ones in the file if all would be too many."""
        together = {**before, **new}
        size = max((_bytes(state) for state in new.values()), default=0)
        if size * len(together) <= self.limit:
            return together
        return {**before, **{device: self._moved(state) for device, state in new.items()}}

    def _moved(self, state: State) -> State:
        return {name: self._mapped(value) for name, value in state.items()}

    def _mapped(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cpu" or not tensor.numel():
            return tensor
        place = self._place(tensor.numel() * tensor.element_size())
        mapped = torch.from_numpy(place).view(tensor.dtype).view(tensor.shape)
        return mapped.copy_(tensor)

    def _place(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if not self._free[room]:
                self._grow(room)
            whole = self._free[room].pop()
        # A view that torch holds for as long as any tensor needs it; then the place is free again.
        view = whole[:size]
        weakref.finalize(view, self._free[room].append, whole)
        return view

    def _grow(self, room: int) -> None:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.truncate(room * SLOTS)
            mapped = np.frombuffer(mmap.mmap(file.fileno(), room * SLOTS), dtype=np.uint8)
        self.bytes += room * SLOTS
        self._free[room] += [mapped[at : at + room] for at in range(0, room * SLOTS, room)]


def _bytes(state: State) -> int:
    return sum(value.numel() * value.element_size() for value in state.values())
