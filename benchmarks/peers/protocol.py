"""The peer's side of the protocol of `benchmarks.peer_runs`, and the exported workload.

It runs in every peer's environment and therefore needs only the standard library and numpy. Output
of a framework must not mix with the answers: standard output is redirected to standard error, and
the answers go to a copy of the original standard output.
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


class ExportedWorkload(NamedTuple):
    """A workload as `benchmarks.workloads.export` wrote it; ``x`` is mapped, not read."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    theta: Floats
    buffers: Floats
    order: Rows
    facts: dict[str, Any]

    def rows(self, turn: int, device: int) -> Rows:
        """Return a device's rows in the order of a round."""
        rows: Rows = self.order[turn % len(self.order), device]
        return rows

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
    tensors, at = {}, 0
    for name, shape in zip(names, shapes, strict=True):
        size = int(np.prod(shape, dtype=np.int64))
        tensors[name] = vector[at : at + size].reshape(shape)
        at += size
    return tensors


def read_workload(folder: Path) -> ExportedWorkload:
    """Return the workload of a folder."""
    arrays = np.load(folder / "workload.npz")
    facts = json.loads((folder / "workload.json").read_text(encoding="utf-8"))
    x = np.load(folder / "x.npy", mmap_mode="r")
    return ExportedWorkload(
        x, arrays["y"], arrays["theta"], arrays["buffers"], arrays["order"], facts
    )


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def thread_options() -> list[str]:
    """Return the numbers of torch threads to try."""
    return ["1 thread"] if cores() == 1 else ["1 thread", f"{cores()} threads"]


def mkl_setting() -> str:
    """Return what MKL has been told about equal results in this process, to say it on the page."""
    setting = os.environ.get("MKL_CBWR", "")
    return f"MKL_CBWR {setting or 'not set'}"


class DriverLink:
    """Answers the driver's requests."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def _send(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def rounds(
        self,
        theta: Callable[[], Floats],
        packages: Sequence[str],
        options: Sequence[str] = ("",),
        note: str = "",
    ) -> Iterator[str]:
        """Yield the option of each requested round; a round ends when the next one is asked for.

        Args:
            theta: Returns the averaged model as one vector, in the workload's order.
            packages: Packages whose versions are reported.
            options: Ways to run a round; the driver keeps the fastest.
            note: A remark for readers of the results.
        """
        self._send(
            versions={name: version(name) for name in packages}, options=list(options), note=note
        )
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "stop":
                return
            if request["do"] == "model":
                np.save(request["path"], theta())
                self._send(path=request["path"])
                continue
            start, used = time.perf_counter(), time.process_time()
            yield request["option"]
            seconds, processor = time.perf_counter() - start, time.process_time() - used
            self._send(seconds=seconds, processor=processor)


def workload_folder() -> Path:
    """Return the folder that was named on the command line."""
    return Path(sys.argv[1])
