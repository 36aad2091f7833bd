"""Callbacks: how the progress display, the run folder, trackers and you follow a run.

A callback is told what happens, always by one record: `Callback` has a method for each kind. All of
it is told in the thread that computes, in the order in which the callbacks were given, and a
callback that raises an exception ends the run. docs/callbacks.md has the table and an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.core.names import printable, shortened

if TYPE_CHECKING:
    from pathlib import Path

    from ebbflow.config.resolved import Config
    from ebbflow.core.types import Session
    from ebbflow.runs.records import Round
    from ebbflow.simulation.tracks import Track
    from ebbflow.simulation.world import World

RunOutcome = Literal["finished", "stopped", "failed"]


class ResumePoint(NamedTuple):
    """The last round that a resumed run keeps; ``round`` is None if its whole session is done."""

    seed: int
    session: int
    round: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class RunStarted:
    """A run begins or goes on; everything has been checked, and nothing computed.

    Attributes:
        config: The configuration with every default filled in.
        folder: The run folder; None if everything stays in memory.
        resumed: Where a resumed run goes on from; None if it begins at the beginning.
    """

    config: Config = field(repr=False)
    folder: Path | None = None
    resumed: ResumePoint | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds of the run, in their order."""
        return tuple(self.config.seeds)


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionEvent:
    """Something happens in a session: what the records below have in common.

    Attributes:
        world: What all methods share under one seed: data, model, sessions, devices' names.
        session: The session: its ``index`` from one, ``devices``, ``rounds`` and ``labels``.
        recorded: What ``events.jsonl`` records of it, one dictionary a line.
    """

    world: World = field(repr=False)
    session: Session
    recorded: Sequence[dict[str, Any]] = field(default=(), repr=False)

    @property
    def seed(self) -> int:
        """The seed that is run."""
        return self.world.seed

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of the devices that are here."""
        return self.session.devices


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionStarted(SessionEvent):
    """Every method has chosen the model that it begins the session with.

    Attributes:
        tracks: The methods that go on, each with its model and what it remembers.
    """

    tracks: Sequence[Track] = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundFinished(SessionEvent):
    """A round has been trained and evaluated in every method that goes on.

    Attributes:
        round: The round's number in its session, from one.
        participants: The numbers of the devices that were drawn to train.
        results: What each method has achieved.
        tracks: The methods as they were at the round's end, in the order of ``results``.
    """

    round: int
    participants: Sequence[int] = ()
    results: Sequence[Round]
    tracks: Sequence[Track] = field(repr=False)

    @property
    def step(self) -> int:
        """The round's number under its seed, counted through all sessions."""
        return sum(self.world.lengths[: self.session.index - 1]) + self.round


@dataclass(frozen=True, eq=False, kw_only=True)
class MethodEnded(SessionEvent):
    """A method cannot go on; the others do, and it is not among their tracks any more.

    Attributes:
        round: The round in which it ended; 0 if that was while the session began.
        track: The method as it ended.
    """

    round: int
    track: Track = field(repr=False)

    @property
    def algorithm(self) -> str:
        """The algorithm that the method is compared under."""
        return self.track.method.group

    @property
    def method(self) -> str:
        """The method's name."""
        return self.track.method.name

    @property
    def reason(self) -> str:
        """Why it cannot go on, in a sentence."""
        return self.track.ended


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionFinished(SessionEvent):
    """A session is over, and its final models are among the past ones.

    Attributes:
        tracks: The methods that go on.
    """

    tracks: Sequence[Track] = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFinished:
    """A run is over, one way or another.

    Attributes:
        config: The configuration with every default filled in.
        folder: The run folder; None if everything stayed in memory.
        outcome: ``"finished"``; ``"stopped"`` if somebody asked for it; ``"failed"`` by an error.
        error: What stopped a run that is not finished.
        rows: The window accuracies as in ``summary.json``; none if the run is not finished.
    """

    config: Config = field(repr=False)
    folder: Path | None = None
    outcome: RunOutcome = "finished"
    error: BaseException | None = None
    rows: Sequence[dict[str, Any]] = field(default=(), repr=False)


class Callback:
    """Told what happens in a run; by default it does nothing.

    Inherit from it and write the methods that you need. What is told is for reading: models and
    lists are the run's own.
    """

    def run_started(self, event: RunStarted) -> None:
        """Handle the start of a run, also of one that goes on."""

    def session_started(self, event: SessionStarted) -> None:
        """Handle a session's start; one that is resumed halfway has been told of before."""

    def round_finished(self, event: RoundFinished) -> None:
        """Handle a round that has been trained and evaluated."""

    def method_ended(self, event: MethodEnded) -> None:
        """Handle a method that cannot go on."""

    def session_finished(self, event: SessionFinished) -> None:
        """Handle the end of a session."""

    def run_finished(self, event: RunFinished) -> None:
        """Handle the end of a run, also of one that was stopped or that failed."""


def checked_callbacks(callbacks: object, where: str) -> list[Callback]:
    """Return callbacks as a list, or raise an error if there is anything else among them."""
    if not isinstance(callbacks, list | tuple):
        raise EbbflowError(
            f"{where} = {_shown(callbacks)} is no list: write callbacks=[...] with your callbacks"
        )
    for place, callback in enumerate(callbacks):
        if not isinstance(callback, Callback):
            raise EbbflowError(
                f"{where}[{place}] = {_shown(callback)} is no callback: give an instance of a "
                'class that inherits from ebbflow.Callback, or a tracker, as ebbflow.tracker("csv")'
            )
    return list(callbacks)


def _shown(value: object) -> str:
    return shortened(printable(repr(value)), 80)


@contextmanager
def announced(callbacks: Sequence[Callback], started: RunStarted) -> Iterator[list[dict[str, Any]]]:
    """Tell callbacks of a run's start and, however it ends, of its end.

    The block is given a list to put the summary's rows into. A callback that failed at the start is
    not told of the end. If callbacks fail at the end, the others are told nevertheless, and what
    ended the run is raised rather than what they raised.
    """
    rows: list[dict[str, Any]] = []
    heard: list[Callback] = []
    try:
        for callback in callbacks:
            callback.run_started(started)
            heard.append(callback)
        yield rows
    except BaseException as error:
        stopped = isinstance(error, RunStoppedError | KeyboardInterrupt)
        outcome: RunOutcome = "stopped" if stopped else "failed"
        for other in _told(heard, _over(started, outcome, error)):
            error.add_note(f"a callback failed as well: {other!r}")
        raise
    for failed in _told(heard, _over(started, rows=rows)):
        raise failed


def _over(
    started: RunStarted,
    outcome: RunOutcome = "finished",
    error: BaseException | None = None,
    rows: Sequence[dict[str, Any]] = (),
) -> RunFinished:
    config, folder = started.config, started.folder
    return RunFinished(config=config, folder=folder, outcome=outcome, error=error, rows=rows)


def _told(callbacks: Sequence[Callback], event: RunFinished) -> list[Exception]:
    """Tell every callback that the run is over, and return what they raised."""
    failures = []
    for callback in callbacks:
        try:
            callback.run_finished(event)
        except Exception as error:
            failures.append(error)
    return failures
