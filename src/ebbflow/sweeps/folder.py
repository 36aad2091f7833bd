"""The folder of a sweep: the plan, the cells' run folders, and notes of those who compute them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_atomically
from ebbflow.runs import records
from ebbflow.runs.plain import check_plain
from ebbflow.sweeps import claims, clusters, failures, locks, room
from ebbflow.sweeps.cores import shares_of_cores
from ebbflow.sweeps.estimates import FILE as ESTIMATES
from ebbflow.sweeps.estimates import CellEstimate, read_estimates, write_estimates
from ebbflow.sweeps.failures import Failures
from ebbflow.sweeps.jobs import Jobs, JobsReference, Stop
from ebbflow.sweeps.plan import FILE, SweepCell, SweepPlan, plan_text, read_plan

CELLS = "cells"
LOGS = "logs"
LOCK = ".sweep.lock"


class SweepFolder:
    """A folder that holds a sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def plan_file(self) -> Path:
        """The file of the plan."""
        return self.path / FILE

    @property
    def exists(self) -> bool:
        """Whether there is a plan."""
        return self.plan_file.is_file()

    def run_folder(self, name: str) -> Path:
        """Return the folder of a cell's run."""
        return self.path / CELLS / name

    def is_done(self, cell: SweepCell) -> bool:
        """Whether a cell's run is finished, and is the one that the plan has."""
        run = self.run_folder(cell.name)
        return (run / records.SUMMARY).is_file() and is_same(cell, run)

    def plan(self) -> SweepPlan:
        """Return the plan, after checking that the folder holds only plain files beside it."""
        found = read_plan(self.plan_file)
        own = (claims.FOLDER, clusters.FOLDER, failures.FOLDER, failures.LEFT, room.FOLDER)
        for name in own:
            if (self.path / name).is_symlink():
                raise EbbflowError(
                    f"{self.path / name} is a symbolic link: a sweep's folder holds plain folders"
                )
            if (self.path / name).is_dir():
                check_plain(self.path / name)
        return found

    def accepted(self, plan: SweepPlan) -> SweepPlan:
        """Return the plan that the folder would have with this one; raise an error if none.

        A folder that holds a sweep keeps its cells, and takes new ones.
        """
        if self.exists:
            return self.plan().extended(plan, self.path)
        if (self.path / records.CONFIG).exists():
            raise EbbflowError(f"{self.path} holds a run, and no sweep: choose another --out")
        if self.path.exists() and (not self.path.is_dir() or any(self._strange())):
            raise EbbflowError(f"{self.path} exists and is no empty folder: choose another --out")
        return plan

    def _strange(self) -> list[Path]:
        """Return what no sweep has left that was killed before it had a plan."""
        ours = re.compile(rf"{re.escape(LOCK)}|{re.escape(ESTIMATES)}|\..+\.tmp")
        return [path for path in self.path.iterdir() if not ours.fullmatch(path.name)]

    def write(self, plan: SweepPlan, estimates: Mapping[str, CellEstimate]) -> SweepPlan:
        """Write a plan, or add its new cells to the one that is there; return what is there."""
        try:
            make_folder(self.path)
        except OSError as error:
            raise EbbflowError(
                f"{self.path} cannot be written ({error.strerror}): choose another --out"
            ) from None
        with locks.locked(self.path / LOCK):
            whole = self.accepted(plan)
            # First: a worker that finds a new cell asks how much memory it needs.
            write_estimates(self.path / ESTIMATES, {**self.estimates(), **estimates})
            if not self.exists or whole != self.plan():
                write_atomically(self.plan_file, plan_text(whole))
        return whole

    def estimates(self) -> dict[str, CellEstimate]:
        """Return what cells will take, as far as it was measured."""
        return read_estimates(self.path / ESTIMATES)

    def retry(self) -> list[str]:
        """Let failed cells be tried again; return their names."""
        failed = Failures(self.path)
        return [cell.name for cell in self.plan().cells if failed.forget(cell.name)]

    def reference(self, plugins: Sequence[str] = ()) -> JobsReference:
        """Return how a worker gets this sweep's cells, whatever its working directory is."""
        folder = str(self.path.absolute())
        arguments: dict[str, Any] = {"folder": folder, "plugins": list(plugins)}
        return JobsReference(f"{__name__}:jobs_of", arguments)


class SweepJobs(Jobs):
    """The cells of a sweep's folder.

    Args:
        folder: The folder.
        plugins: Files of plugins that are trusted here.
        cores: The processor cores that a cell is given; by default those that this process may use.
    """

    def __init__(self, folder: Path, plugins: Sequence[str] = (), cores: int = 0) -> None:
        self.folder, self._cores = folder, cores
        self._sweep = SweepFolder(folder)
        self._plugins = [Path(path) for path in plugins]
        self._written: tuple[int, int] | None = None
        self._plan = SweepPlan("", (), ())
        self._estimates: dict[str, CellEstimate] = {}
        self._clusters: dict[str | None, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the plan again if it was written anew."""
        self._clusters = {}  # one may have been started or ended
        path = self._sweep.plan_file
        if path.exists():
            facts = path.stat()
            if (facts.st_mtime_ns, facts.st_ino) == self._written:
                return
            self._written = facts.st_mtime_ns, facts.st_ino
        self._plan = self._sweep.plan()
        self._estimates = self._sweep.estimates()

    def names(self) -> Sequence[str]:
        """Return the names of all cells."""
        return [cell.name for cell in self._plan.cells]

    def is_done(self, name: str) -> bool:
        """Whether a cell's run is finished, and is the one that the plan has."""
        return self._sweep.is_done(self._plan.by_name[name])

    def run_folder(self, name: str) -> Path:
        """Return the folder of a cell's run."""
        return self._sweep.run_folder(name)

    def need(self, name: str) -> int | None:
        """Return the bytes of memory that were foretold for a cell."""
        found = self._estimates.get(name)
        if found is None:
            return None
        return found.memory_on(self._cores or len(shares_of_cores(1)[0]) or found.cores)

    def cluster(self, name: str) -> str:
        """Return the address of the Ray cluster that a cell takes as a whole, if it takes one."""
        engine = self._plan.by_name[name].settings["engine"]
        if engine["kind"] != "ray":
            return ""
        from ebbflow.cluster.connection import shared_address  # noqa: PLC0415 - for few sweeps

        given = engine.get("address")
        if given not in self._clusters:
            self._clusters[given] = shared_address(given)
        return self._clusters[given]

    def compute(self, name: str, stop: Stop) -> None:
        """Run a cell, or resume it."""
        # Torch is for the process that computes; those that look do without.
        from ebbflow import experiment  # noqa: PLC0415
        from ebbflow.plugins import load_recorded  # noqa: PLC0415

        cell, run = self._plan.by_name[name], self.run_folder(name)
        config = cell.config
        load_recorded(config.plugins, self._plugins)
        if (run / records.CONFIG).is_file():
            if not is_same(cell, run):
                raise EbbflowError(f"{run} holds a run with other settings: move it away")
            experiment.resume(run, stop=stop)
        else:
            experiment.run(config, run, stop=stop)


def is_same(cell: SweepCell, run: Path) -> bool:
    """Whether a run folder is that of a cell; a damaged one is taken to be, and resumed."""
    with suppress(OSError, ValueError):  # it cannot be read: see below
        if tomllib.loads((run / records.CONFIG).read_text(encoding="utf-8")) == cell.settings:
            return True
    # Settings that change no result may differ. To know them, torch is needed.
    from ebbflow.runs.configuration import read_config  # noqa: PLC0415
    from ebbflow.sweeps.planning import cell_digest  # noqa: PLC0415

    try:
        return cell_digest(read_config(run)) == cell.digest
    except EbbflowError:
        return True


def jobs_of(folder: str, plugins: Sequence[str] = (), cores: int = 0) -> SweepJobs:
    """Return the cells of a folder, for a worker."""
    return SweepJobs(Path(folder), plugins, cores)
