"""Something that looks at the program now and then, from a thread of its own."""

from __future__ import annotations

import threading
from typing import Self


class Watching:
    """Looks again and again while the block runs; what a look does is the subclass's."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self) -> None:
        raise NotImplementedError

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
