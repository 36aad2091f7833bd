"""Callbacks for tests."""

from __future__ import annotations

from typing import TypeVar

from ebbflow.core.types import ModelState
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    RoundFinished,
    RunFinished,
    RunStarted,
    SessionFinished,
    SessionStarted,
)

Told = TypeVar("Told")


class Stopped(Exception):  # noqa: N818 - a signal, no error
    """What the tests stop a run with."""


class StopAfter(Callback):
    """A callback that stops the run after some rounds, once the folder has heard of them."""

    def __init__(self, rounds: int, by: type[BaseException] = Stopped) -> None:
        self.left = rounds
        self.by = by

    def round_finished(self, event: RoundFinished) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.by


class Finals(Callback):
    """A callback that keeps every session's final models, track by track."""

    def __init__(self) -> None:
        self.models: list[list[ModelState]] = []

    def session_finished(self, event: SessionFinished) -> None:
        self.models.append([track.model for track in event.tracks])


class Diary(Callback):
    """A callback that keeps everything that it is told."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def run_started(self, event: RunStarted) -> None:
        self.events.append(event)

    def session_started(self, event: SessionStarted) -> None:
        self.events.append(event)

    def round_finished(self, event: RoundFinished) -> None:
        self.events.append(event)

    def method_ended(self, event: MethodEnded) -> None:
        self.events.append(event)

    def session_finished(self, event: SessionFinished) -> None:
        self.events.append(event)

    def run_finished(self, event: RunFinished) -> None:
        self.events.append(event)

    def of(self, kind: type[Told]) -> list[Told]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]
