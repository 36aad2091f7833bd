"""Cells that compute next to nothing, for workers in tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.sweeps.jobs import Jobs, Stop


class ToyJobs(Jobs):
    """Cells by name, with what each does: wait, fail, crash, need memory, or take a cluster."""

    modules = ()

    def __init__(
        self,
        folder: Path,
        does: Mapping[str, str],
        needs: Mapping[str, int],
        clusters: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._does, self._needs = folder, does, needs
        self._clusters = clusters or {}

    def names(self) -> Sequence[str]:
        return list(self._does)

    def is_done(self, name: str) -> bool:
        return (self.folder / "done" / name).exists()

    def run_folder(self, name: str) -> Path:
        return self.folder / "cells" / name

    def need(self, name: str) -> int | None:
        return self._needs.get(name)

    def cluster(self, name: str) -> str:
        return self._clusters.get(name, "")

    def refresh(self) -> None:
        pass

    def compute(self, name: str, stop: Stop) -> None:
        does = self._does[name]
        with (self.folder / "log").open("a") as log:
            log.write(f"{time.time()} begin {name}\n")
        if does == "refuse":
            raise EbbflowError("it cannot be: mend it")
        if does == "bug":
            raise KeyError("a bug")
        if does == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if does.startswith("wait"):
            until = time.monotonic() + float(does.removeprefix("wait"))
            while time.monotonic() < until:
                if stop():
                    raise RunStoppedError
                time.sleep(0.02)
        if does.startswith("round"):  # in which nobody asks whether to stop
            time.sleep(float(does.removeprefix("round")))
        (self.folder / "done").mkdir(exist_ok=True)
        (self.folder / "done" / name).touch()
        if does.startswith("linger"):  # as a process does that has a cluster to disconnect from
            time.sleep(float(does.removeprefix("linger")))
        with (self.folder / "log").open("a") as log:
            log.write(f"{time.time()} end {name}\n")


def toy_jobs(
    folder: str,
    does: Mapping[str, str],
    needs: Mapping[str, int],
    clusters: Mapping[str, str] | None = None,
) -> ToyJobs:
    return ToyJobs(Path(folder), does, needs, clusters)
