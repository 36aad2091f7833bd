"""Callbacks for tests."""

from __future__ import annotations

from collections.abc import Sequence

from ebbflow.core.types import ModelState, Session
from ebbflow.runs.records import Round
from ebbflow.simulation.callbacks import Callback
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World


class Stopped(Exception):  # noqa: N818 - a signal, no error
    """What the tests stop a run with."""


class StopAfter(Callback):
    """A callback that stops the run after some rounds, once the folder has heard of them."""

    def __init__(self, rounds: int, by: type[BaseException] = Stopped) -> None:
        self.left = rounds
        self.by = by

    def round_finished(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.by


class Finals(Callback):
    """A callback that keeps every session's final models, track by track."""

    def __init__(self) -> None:
        self.models: list[list[ModelState]] = []

    def session_finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        self.models.append([track.model for track in tracks])
