"""The peer's side of the conversation that `benchmarks.peer_runs` describes, and the exported work.

Standard library and numpy only: it runs in every peer's environment. What a framework prints must
not disturb the answers, so standard output is turned into standard error, and the answers go to a
copy of the real one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.int64]


class Work(NamedTuple):
    """A work as `benchmarks.works.export` writes it; ``x`` is mapped, not read."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    theta: Floats
    buffers: Floats
    order: Rows
    facts: dict[str, Any]

    def rows(self, turn: int, device: int) -> Rows:
        """Return a device's rows in the order of a round."""
        found: Rows = self.order[turn % len(self.order), device]
        return found

    def batches(self, turn: int, device: int) -> Iterator[Rows]:
        """Yield the rows of every step of a device in a round."""
        rows = self.rows(turn, device)
        for at in range(0, len(rows), self.facts["batch"]):
            yield rows[at : at + self.facts["batch"]]

    def tensors(self) -> dict[str, Floats]:
        """Return the initial parameters by name."""
        return _cut(self.theta, self.facts["names"], self.facts["shapes"])


def _cut(
    vector: Floats, names: Sequence[str], shapes: Sequence[Sequence[int]]
) -> dict[str, Floats]:
    found, at = {}, 0
    for name, shape in zip(names, shapes, strict=True):
        size = int(np.prod(shape, dtype=np.int64))
        found[name] = vector[at : at + size].reshape(shape)
        at += size
    return found


def read_work(folder: Path) -> Work:
    """Return the work of a folder."""
    arrays = np.load(folder / "work.npz")
    facts = json.loads((folder / "work.json").read_text(encoding="utf-8"))
    x = np.load(folder / "x.npy", mmap_mode="r")
    return Work(x, arrays["y"], arrays["theta"], arrays["buffers"], arrays["order"], facts)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def thread_options() -> list[str]:
    """Return the numbers of torch threads that are worth a try."""
    return ["1 thread"] if cores() == 1 else ["1 thread", f"{cores()} threads"]


class Talk:
    """Answers to what the driver asks."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def _say(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def rounds(
        self,
        theta: Callable[[], Floats],
        packages: Sequence[str],
        options: Sequence[str] = ("",),
        note: str = "",
    ) -> Iterator[str]:
        """Yield the option of every round that is asked for; asking for the next ends a round.

        Args:
            theta: Returns the averaged model as one vector, in the work's order.
            packages: Whose versions are reported.
            options: Ways to run a round, of which the driver keeps the fastest.
            note: What a reader of the figures should know.
        """
        self._say(
            versions={name: version(name) for name in packages}, options=list(options), note=note
        )
        for line in sys.stdin:
            asked = json.loads(line)
            if asked["do"] == "stop":
                return
            if asked["do"] == "model":
                np.save(asked["path"], theta())
                self._say(path=asked["path"])
                continue
            start = time.perf_counter()
            yield asked["option"]
            self._say(seconds=time.perf_counter() - start)


def work_folder() -> Path:
    """Return the folder that was named on the command line."""
    return Path(sys.argv[1])
