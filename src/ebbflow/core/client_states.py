"""Device states in a memory-mapped file, once they no longer fit into memory.

Control variates and old models are as large as the model, and every device has one. Mapped pages
belong to the page cache: the operating system keeps as many of them in memory as there is room for.
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

SLOTS = 32  # the file grows by this many tensor slots at a time


class StateFile:
    """Keeps device states in memory up to a limit, and in a mapped file beyond it.

    A slot of the file is reused as soon as no tensor refers to it: tensors are replaced, never
    changed in place, as everywhere else. The file has no name and vanishes with the process.

    Args:
        limit: Bytes of device states that one method may hold in memory.
        folder: Where to create the file; by default the folder for temporary files.
    """

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self.limit = limit
        self.bytes = 0
        self._folder = folder
        self._free: dict[int, list[np.ndarray[tuple[int], np.dtype[np.uint8]]]] = defaultdict(list)
        self._lock = threading.Lock()

    def keep(self, before: Mapping[int, State], new: Mapping[int, State]) -> dict[int, State]:
        """Return all devices' states; the new ones go to the file if all would exceed the limit."""
        states = {**before, **new}
        size = max((_bytes(state) for state in new.values()), default=0)
        if size * len(states) <= self.limit:
            return states
        return {**before, **{device: self._moved(state) for device, state in new.items()}}

    def _moved(self, state: State) -> State:
        return {name: self._mapped(value) for name, value in state.items()}

    def _mapped(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cpu" or not tensor.numel():
            return tensor
        slot = self._slot(tensor.numel() * tensor.element_size())
        mapped = torch.from_numpy(slot).view(tensor.dtype).view(tensor.shape)
        return mapped.copy_(tensor)

    def _slot(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if not self._free[room]:
                self._grow(room)
            whole = self._free[room].pop()
        # torch holds the view for as long as any tensor needs it; then the slot is free again.
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
