"""Starts a sweep: plan, estimates, folder, workers, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ebbflow.core.errors import EbbflowError
from ebbflow.plugins import trust_recorded
from ebbflow.sweeps.children import GRACE
from ebbflow.sweeps.cores import shares_of_cores
from ebbflow.sweeps.crew import Crew
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.estimates import CellEstimate, measured
from ebbflow.sweeps.failures import Failures
from ebbflow.sweeps.folder import LOGS, SweepFolder
from ebbflow.sweeps.plan import SweepCell, SweepPlan
from ebbflow.sweeps.status import StatusReader, SweepStatus

Tell = Callable[[int, int], None]
"""Told how many of how many different cells have been measured."""


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep before it starts: where, which cells, and what each will take."""

    folder: SweepFolder
    plan: SweepPlan
    estimates: Mapping[str, CellEstimate]
    workers: int
    plugins: Sequence[str] = field(default=())

    @property
    def disk(self) -> int:
        """The bytes that all cells together write at most."""
        return sum(estimate.disk for estimate in self.estimates.values())

    @property
    def memory(self) -> int:
        """The bytes of memory that the largest cell needs."""
        return max((estimate.memory for estimate in self.estimates.values()), default=0)

    @property
    def seconds(self) -> float | None:
        """About how long it takes with its workers, if that is known of every cell."""
        each = [estimate.seconds for estimate in self.estimates.values()]
        known = [seconds for seconds in each if seconds is not None]
        if len(known) < len(each) or not known:
            return None
        return max(*known, sum(known) / max(1, self.workers))


def prepared(
    plan: SweepPlan, folder: SweepFolder, workers: int, plugins: Sequence[str] = (),
    tell: Tell = lambda done, of: None, *, retry: bool = False, on_ray: bool = False,
) -> PreparedSweep:  # fmt: skip
    """Return a sweep that is ready to start; every cell is checked, and what it takes measured.

    Nothing is written. What was measured for as many cores before is not measured again, nor are
    cells that are done, or have failed and are not to be tried again. ``on_ray`` is whether cells
    are to be tasks of a Ray cluster.
    """
    whole = folder.accepted(plan)
    cores = shares_of_cores(max(1, workers))[0]
    failures = Failures(folder.path)
    over = {
        cell.name
        for cell in whole.cells
        if (not retry and cell.name in failures) or folder.is_done(cell)
    }
    left = [cell for cell in whole.cells if cell.name not in over]
    if on_ray or workers > 1:
        _refuse_engine_of_many_machines(left)
    known = {
        name: estimate
        for name, estimate in (folder.estimates() if folder.exists else {}).items()
        if name in over or (name in whole.by_name and estimate.cores == max(1, len(cores)))
    }
    missing = [cell for cell in left if cell.name not in known]
    if missing:
        known |= measured(missing, folder.path, cores, plugins, tell)
    return PreparedSweep(folder, whole, known, workers, plugins)


def _refuse_engine_of_many_machines(cells: Sequence[SweepCell]) -> None:
    """Raise an error if a cell would wait for cores that other cells have."""
    for cell in cells:
        if cell.settings["engine"]["kind"] == "ray":
            raise EbbflowError(
                f'cell {cell.name}: engine.kind = "ray" takes all cores of a Ray cluster for one '
                "cell: compute such cells one at a time, with one worker and without --ray, or use "
                'engine.kind = "vectorised"'
            )


def refuse_full_disk(ready: PreparedSweep) -> None:
    """Raise an error if the cells that are not there yet would not fit on the disk."""
    from ebbflow.simulation.ceilings import in_words, room_on_disk  # noqa: PLC0415 - imports torch

    new = [
        estimate.disk
        for name, estimate in ready.estimates.items()
        if not ready.folder.run_folder(name).exists()
    ]
    left = room_on_disk(ready.folder.path)
    if sum(new) > left:
        raise EbbflowError(
            f"the {len(new)} cells that are not begun write about {in_words(sum(new))} to "
            f"{ready.folder.path}, and its disk has {in_words(left)} left: choose another --out, "
            "or fewer cells"
        )


def write(ready: PreparedSweep) -> SweepPlan:
    """Write the plan and the estimates; from now on workers can begin."""
    refuse_full_disk(ready)
    for cell in ready.plan.cells:
        trust_recorded(cell.settings.get("plugins", ()))
    return ready.folder.write(ready.plan, ready.estimates)


def run_here(ready: PreparedSweep, display: SweepDisplay, grace: int = GRACE) -> int | None:
    """Compute the cells with workers on this machine; return the signal that stopped them."""
    reader = StatusReader(ready.folder)
    status = reader.read()
    display.skip(status)
    if status.over:
        return None
    folder = ready.folder
    crew = Crew(folder.reference(ready.plugins), ready.workers, folder.path / LOGS, grace)
    with display:
        crew.work(lambda: display.update(reader.read()))
    return crew.stopped_by


def refuse_unfinished(status: SweepStatus) -> None:
    """Raise an error that names what has failed, and what was left for other machines."""
    failed = [cell for cell in status.cells if cell.state == "failed"]
    if failed:
        first = failed[0]
        raise EbbflowError(
            f"{len(failed)} of {len(status.cells)} cells of {status.folder} failed, the first "
            f"{first.name}: {first.why}"
        )
    if not status.over:
        left = [cell.name for cell in status.cells if cell.state != "done"]
        raise EbbflowError(
            f"{len(left)} of {len(status.cells)} cells of {status.folder} are not done, the first "
            f"{left[0]}: `ebbflow sweep work {status.folder}` goes on, here or on another machine"
        )
