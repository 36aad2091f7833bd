"""Ray clusters that cells take as a whole: one cell of a sweep at a time.

A cell with ``engine.kind = "ray"`` claims all cores of a cluster, so a second one would wait there
for cores that do not become free, and fail. It begins once the first one has let go of the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebbflow.runs.state import is_locked
from ebbflow.sweeps import locks
from ebbflow.sweeps.cell_names import safe_name

FOLDER = "clusters"


class Clusters:
    """The clusters that cells of a sweep have taken, by locks in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER

    def is_taken(self, address: str) -> bool:
        """Whether a cell has taken the cluster at an address; an empty text is no cluster."""
        return bool(address and is_locked(self._lock(address)))

    @contextmanager
    def taken(self, address: str) -> Iterator[bool]:
        """Take a cluster until the block ends; yield False if another cell has it."""
        if not address:
            yield True
            return
        lock = locks.taken(self._lock(address))
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.release()

    def _lock(self, address: str) -> Path:
        return self.folder / f"{safe_name(address)}.lock"
