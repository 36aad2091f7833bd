"""What workers have to know of cells: which there are, what is done, and how one is computed.

A sweep's own cells are in its folder (`ebbflow.sweeps.folder`). Others may bring cells of another
kind and share the rest: claims, children, failures, and the room in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

Stop = Callable[[], bool]
"""Asked after every round: whether the cell is to be saved and left."""


class Jobs(ABC):
    """Cells that workers compute; ``folder`` is where they write down what they do."""

    folder: Path
    modules: Sequence[str] = ("ebbflow.experiment",)
    """What a worker imports once, so that the processes that compute cells need not."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all cells, in the order in which they should be computed."""

    @abstractmethod
    def is_done(self, name: str) -> bool:
        """Whether a cell needs no more work."""

    @abstractmethod
    def compute(self, name: str, stop: Stop) -> None:
        """Compute a cell, or what is left of it, in a process of its own."""

    @abstractmethod
    def run_folder(self, name: str) -> Path:
        """Return the folder of a cell's run."""

    def need(self, name: str) -> int | None:
        """Return the bytes of memory that a cell needs, if that is known."""
        return None

    def cluster(self, name: str) -> str:
        """Return the address of the Ray cluster that a cell takes as a whole, if it takes one."""
        return ""

    @abstractmethod
    def refresh(self) -> None:
        """Look for cells that have been added; called now and then."""


class JobsReference(NamedTuple):
    """How another process gets the same jobs: a function by module and name, and its arguments."""

    factory: str
    arguments: Mapping[str, Any]

    def open(self) -> Jobs:
        """Return the jobs."""
        module, _, name = self.factory.partition(":")
        jobs = getattr(import_module(module), name)(**self.arguments)
        if not isinstance(jobs, Jobs):
            raise TypeError(f"{self.factory} gives no jobs")
        return jobs
