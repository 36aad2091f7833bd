"""Callbacks: how the progress display, the run folder and others follow a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbflow.core.types import Session
    from ebbflow.runs.records import Round
    from ebbflow.simulation.tracks import Track
    from ebbflow.simulation.world import World


class Callback:
    """Callback for session start, round end and session end; by default it does nothing."""

    def session_started(
        self, world: World, session: Session, events: Sequence[dict[str, Any]]
    ) -> None:
        """Handle a session's start: ``events`` say where each method starts, and why."""

    def round_finished(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        """Handle a round that has been trained and evaluated in every track that goes on."""

    def method_ended(self, world: World, session: Session, t: int, track: Track) -> None:
        """Handle a method that cannot go on after round ``t``; ``track.ended`` says why.

        It is not among the tracks of this and later rounds.
        """

    def session_finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        """Handle the end of a session, whose models are now among the past ones."""
