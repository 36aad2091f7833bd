"""Watchers of runs, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ebbflow.core.types import ModelState, Session
from ebbflow.runs.records import Round
from ebbflow.simulation.simulate import Track
from ebbflow.simulation.world import World


class Deaf:
    """A watcher that takes note of nothing; others name what they care for."""

    def started(self, world: World, session: Session, events: Sequence[dict[str, Any]]) -> None:
        pass

    def advanced(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        pass

    def finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        pass


class Stopped(Exception):  # noqa: N818 - a signal, no error
    """What the tests stop a run with."""


class StopAfter(Deaf):
    """A watcher that stops the run after some rounds, once the folder has heard of them."""

    def __init__(self, rounds: int, by: type[BaseException] = Stopped) -> None:
        self.left = rounds
        self.by = by

    def advanced(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.by


class Finals(Deaf):
    """A watcher that keeps every session's final models, track by track."""

    def __init__(self) -> None:
        self.models: list[list[ModelState]] = []

    def finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        self.models.append([track.model for track in tracks])
