"""What all trackers have in common: from what a run tells to plain numbers with names.

Each method under each seed is a tracked run of its own, so that programs which compare runs compare
methods and average over seeds. The step of a number is its round, counted through all sessions.

A tracker is a copy of the records and may never cost the run: if it fails, it says so once and
stops. When a run goes on, the tracker first reads what the run folder holds, so that its log is
complete, however the run was interrupted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ebbflow.core import counters
from ebbflow.core.counters import Cost
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.judging import judge_of
from ebbflow.core.names import printable, shortened
from ebbflow.runs import records
from ebbflow.runs.records import Round
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    RoundFinished,
    RunFinished,
    RunOutcome,
    RunStarted,
    SessionFinished,
    SessionStarted,
)

if TYPE_CHECKING:
    from ebbflow.config.resolved import Config

TrackedOutcome = RunOutcome | Literal["ended"]
"""How a tracked run ended: as the run did, or because its method could not go on."""
Moment = Literal["start", "round", "end"]
MOMENTS: tuple[Moment, ...] = ("start", "round", "end")
"""A session's start, one of its rounds, its end."""
OF_ROUNDS = ("loss", "lr", "devices", "participants")
"""What is logged of a round besides the measures."""
COSTS = tuple(Cost.__dataclass_fields__)


class NoPlaceError(EbbflowError):
    """There is no folder to write to: the user's to mend, before anything is computed."""


class TrackedRun(NamedTuple):
    """What a tracker shows as one run: a method on an algorithm, under a seed."""

    algorithm: str
    method: str
    seed: int

    @property
    def path(self) -> str:
        """Its name with slashes, as folders are named."""
        return f"{self.algorithm}/{self.method}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """Its name in words."""
        return f"{self.method}, {self.algorithm}, seed {self.seed}"


class Scalars(NamedTuple):
    """The numbers of one moment of a tracked run, by name."""

    run: TrackedRun
    moment: Moment
    session: int
    round: int
    step: int
    values: dict[str, float]


class Tracker(Callback):
    """Logs the numbers of a run; a tracker of its own kind says how they are written.

    Attributes:
        name: What users call it; the folder of its files has the same name.
        library: The module that it needs, if any; the extra of ebbflow has the tracker's name.
        config: The run's configuration.
        folder: The run folder, if there is one.
        judge: The name of the measure that starts are judged by.
    """

    name: ClassVar[str]
    library: ClassVar[str | None] = None
    config: Config
    folder: Path | None
    judge: str

    def __init__(self, place: Path | None = None) -> None:
        if self.library is not None and find_spec(self.library) is None:
            raise EbbflowError(
                f"the tracker {self.name} needs the package {self.library}: "
                f'pip install "ebbflow[{self.name}]"'
            )
        self._given = place
        self._broken = False
        self._open: list[TrackedRun] = []
        self._ended: set[TrackedRun] = set()
        self._lengths: dict[tuple[int, int], int] = {}
        self._before: dict[tuple[int, int], int] = {}

    # --- what a tracker of its own kind says ---

    def open(self) -> None:
        """Get ready for a run."""

    def begin(self, run: TrackedRun) -> None:
        """Begin a tracked run, or go on with it."""

    def log(self, scalars: Scalars) -> None:
        """Log some numbers of a tracked run that has begun."""
        raise NotImplementedError

    def end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        """End a tracked run."""

    def close(self) -> None:
        """Let go of everything."""

    def is_complete(self, run: TrackedRun) -> bool:
        """Whether nothing can be missing of a tracked run, so that it need not begin again."""
        return False

    @property
    def place(self) -> Path | None:
        """The folder that the tracker's own folder lies in, if there is one."""
        return self._given or self.folder

    def own_folder(self) -> Path:
        """Return the tracker's own folder, after making it."""
        if self.place is None:
            raise NoPlaceError(
                f"the tracker {self.name} writes into the run folder, and this run has none: give "
                f'it one by out=..., or write tracker("{self.name}", folder=...)'
            )
        folder = self.place / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def settings_of(self, run: TrackedRun) -> dict[str, Any]:
        """Return the configuration as it is for one tracked run."""
        settings = self.config.model_dump(mode="json", exclude={"methods", "seeds"})
        return settings | run._asdict()

    # --- what a run tells ---

    def run_started(self, event: RunStarted) -> None:
        """Get ready, and log what the run folder holds already."""
        self._broken = False
        self._open, self._ended = [], set()
        self._lengths, self._before = {}, {}
        self.config, self.folder = event.config, event.folder
        self.judge = judge_of(event.config.task, event.config.metrics).name
        self._attempt(self._start)

    def session_started(self, event: SessionStarted) -> None:
        """Log where each method starts."""
        self._attempt(lambda: self._log_lines(event.recorded))

    def round_finished(self, event: RoundFinished) -> None:
        """Log what each method has achieved."""
        self._attempt(lambda: self._log_all(map(self._of_round, event.results)))

    def method_ended(self, event: MethodEnded) -> None:
        """End the method's tracked run."""
        self._attempt(lambda: self._log_lines(event.recorded))

    def session_finished(self, event: SessionFinished) -> None:
        """Log what the session's final models achieve, and what it cost."""
        self._attempt(lambda: self._log_lines(event.recorded))

    def run_finished(self, event: RunFinished) -> None:
        """End what is still open."""

        def finish() -> None:
            self._end_all(event.outcome)
            self.close()

        self._attempt(finish)

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do something that may fail without harm to the run."""
        if self._broken:
            return
        try:
            action()
        except NoPlaceError:
            raise
        except Exception as error:
            self._broken = True
            with suppress(Exception):
                self.close()
            why = shortened(printable(f"{type(error).__name__}: {error}"), 300)
            text = f"the tracker {self.name} has stopped, and the run goes on ({why})"
            warnings.warn(text, EbbflowWarning, stacklevel=3)

    # --- from what is told to numbers ---

    def _start(self) -> None:
        self.open()
        if self.folder is not None:
            self._catch_up(self.folder)

    def _catch_up(self, folder: Path) -> None:
        """Log all that is recorded, in the order in which it was told."""
        lines = records.read_events(folder)
        self._learn(lines)
        scalars = [*self._of_lines(lines), *map(self._of_round, records.read_rounds(folder))]
        order = {seed: place for place, seed in enumerate(self.config.seeds)}
        scalars.sort(key=lambda s: (order[s.run.seed], s.step, MOMENTS.index(s.moment)))
        self._log_all(scalars)
        self._end_ended()

    def _log_lines(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Log what lines of ``events.jsonl`` say."""
        lines = list(lines)
        self._learn(lines)
        self._log_all(self._of_lines(lines))
        self._end_ended()

    def _learn(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take note of the lengths of sessions, and of methods that have ended."""
        for line in lines:
            if line["event"] == "start":
                seed, session = line["seed"], line["session"]
                before = seed, session - 1
                self._lengths[seed, session] = line["rounds"]
                so_far = self._before[before] + self._lengths[before] if session > 1 else 0
                self._before[seed, session] = so_far
            elif line["event"] == "ended":
                self._ended.add(_run_of(line))

    def _of_round(self, r: Round) -> Scalars:
        run = TrackedRun(r.algorithm, r.method, r.seed)
        # A measure of the user's own may have one of our names.
        measures = {
            f"measure/{name}" if name in OF_ROUNDS else name: value
            for name, value in (r.measures or {self.judge: r.accuracy}).items()
        }
        values = measures | {name: getattr(r, name) for name in OF_ROUNDS}
        step = self._before[r.seed, r.session] + r.round
        return Scalars(run, "round", r.session, r.round, step, values)

    def _of_lines(self, lines: Iterable[Mapping[str, Any]]) -> Iterator[Scalars]:
        """Yield the numbers of sessions' starts and ends."""
        found: dict[tuple[TrackedRun, int, Moment], dict[str, float]] = {}
        for line in lines:
            moment: Moment = "start" if line["event"] == "start" else "end"
            if values := self._values(line):
                found.setdefault((_run_of(line), line["session"], moment), {}).update(values)
        for (run, session, moment), values in found.items():
            t = 1 if moment == "start" else self._lengths[run.seed, session]
            step = self._before[run.seed, session] + t
            yield Scalars(run, moment, session, t, step, values)

    def _values(self, line: Mapping[str, Any]) -> dict[str, float]:
        if line["event"] == "start":
            return {f"start/{self.judge}": line["accuracy"], "start/loss": line["loss"]}
        if line["event"] == "tested":
            devices = line.get("devices") or {}
            return {f"final/{self.judge}": line["all"]} | {
                f"final/devices_{name}": devices[name]
                for name in ("mean", "worst", "spread")
                if name in devices
            }
        if line["event"] == counters.EVENT:
            stages = counters.read(line["stages"]).values()
            total = sum(stages, Cost())
            costs = {f"cost/{name}": getattr(total, name) for name in COSTS}
            return costs | {"cost/stored_bytes": line["stored"]["bytes"]}
        return {}

    # --- tracked runs ---

    def _log_all(self, scalars: Iterable[Scalars]) -> None:
        for some in scalars:
            if self.is_complete(some.run):
                continue
            if some.run not in self._open:
                if any(run.seed != some.run.seed for run in self._open):
                    self._end_all("finished")  # seeds are run one after another
                self._open.append(some.run)
                self.begin(some.run)
            self.log(some)

    def _end_ended(self) -> None:
        for run in [run for run in self._open if run in self._ended]:
            self._end(run, "ended")

    def _end_all(self, outcome: RunOutcome) -> None:
        for run in list(self._open):
            self._end(run, "ended" if run in self._ended else outcome)

    def _end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        self._open.remove(run)
        self.end(run, outcome)


def _run_of(line: Mapping[str, Any]) -> TrackedRun:
    return TrackedRun(line["algorithm"], line["method"], line["seed"])
