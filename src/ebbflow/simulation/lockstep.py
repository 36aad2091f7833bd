"""Methods in lockstep: over the same devices and mini-batches, and computed once where alike.

As long as two tracks are in the same place (all are, until the first session at which there is a
choice) a round is trained and evaluated once for both. A round is evaluated while the next one
trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from ebbflow.core import counters
from ebbflow.core.counters import charged
from ebbflow.core.evaluate import Score
from ebbflow.core.local import Cohort, Engine, Route
from ebbflow.core.types import Examples
from ebbflow.simulation.rounds import lanes_of, train_round
from ebbflow.simulation.tracks import Track, leaders_of
from ebbflow.simulation.world import World

Scores = Callable[[], list[Score]]
"""Waits for the scores of all tracks."""


class Lockstep:
    """The tracks of one session, led by those that are in a place of their own."""

    def __init__(self, world: World, tracks: Sequence[Track], engine: Engine) -> None:
        self.world, self.tracks, self.engine = world, tracks, engine
        self._leaders = leaders_of(tracks)
        self._ahead = sorted(set(self._leaders))

    def train(self, cohort: Cohort, rounds: int) -> None:
        """Train one of a session's ``rounds`` in every track, and charge it."""
        leading, rates = self._leading(cohort.round, rounds)
        spent = train_round(self.world, leading, rates, cohort, self.engine)
        costs = dict(zip(self._ahead, spent, strict=True))
        pilot = self.world.rules.is_pilot(cohort.session)
        stage = counters.PILOT if pilot else counters.MAIN
        for track, leader in zip(self.tracks, self._leaders, strict=True):
            led = self.tracks[leader]
            track.model, track.server, track.clients = led.model, led.server, led.clients
            # Whoever follows is charged as if it had been alone.
            track.costs = charged(track.costs, stage, costs[leader])

    def routes(self, cohort: Cohort, rounds: int) -> list[Route]:
        """Return how each track is trained in such a round."""
        lanes = lanes_of(*self._leading(cohort.round, rounds))
        routes = [self.engine.route(lane, cohort) for lane in lanes]
        by_leader = dict(zip(self._ahead, routes, strict=True))
        return [by_leader[leader] for leader in self._leaders]

    def _leading(self, t: int, rounds: int) -> tuple[list[Track], list[float]]:
        """Return the leading tracks, and their rates in round t of ``rounds``."""
        tracks = [self.tracks[i] for i in self._ahead]
        return tracks, [track.method.rates(rounds)[t - 1] for track in tracks]

    def evaluate(self, test: Examples) -> Scores:
        """Begin to evaluate the models as they are now."""
        scores = self.engine.evaluate([self.tracks[i].model for i in self._ahead], test)

        def wait() -> list[Score]:
            by_leader = dict(zip(self._ahead, scores(), strict=True))
            return [by_leader[leader] for leader in self._leaders]

        return wait

    def snapshot(self) -> list[Track]:
        """Return the tracks as they are now; training replaces what they hold, not its entries."""
        return [replace(track) for track in self.tracks]


class Delayed:
    """Runs each action when the next one is added, and the last one when the block ends.

    Also when the block ends by an exception: what an action is about to report was over before.
    """

    def __init__(self) -> None:
        self._pending: Callable[[], None] | None = None

    def add(self, action: Callable[[], None]) -> None:
        """Run the action added before, and keep this one for later."""
        self._run()
        self._pending = action

    def _run(self) -> None:
        action, self._pending = self._pending, None
        if action is not None:
            action()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._run()
