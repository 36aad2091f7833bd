"""Sampling the running program at regular intervals, from a separate thread."""

from __future__ import annotations

import threading
from typing import Self


class PeriodicSampler:
    """Calls ``_sample`` every ``interval`` seconds while the `with` block runs."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _sample(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        while not self._finished.wait(self._interval):
            self._sample()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._finished.set()
        self._thread.join()
