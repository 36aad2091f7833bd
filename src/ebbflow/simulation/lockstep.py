"""Methods in lockstep: same devices, same mini-batches, and shared work where methods agree.

As long as two tracks have the same state (all have, until the first session with a choice of
models), a round is trained and evaluated once for both. A round is evaluated while the next one is
trained.
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
"""Waits for the scores of all tracks and returns them."""


class Lockstep:
    """The tracks of one session; tracks with the same state follow the first of them."""

    def __init__(self, world: World, tracks: Sequence[Track], engine: Engine) -> None:
        self.world, self.tracks, self.engine = world, tracks, engine
        self._leaders = leaders_of(tracks)
        self._ahead = sorted(set(self._leaders))

    def train(self, cohort: Cohort, rounds: int) -> None:
        """Train one of a session's ``rounds`` in every track, and add its cost."""
        leading, rates = self._leading(cohort.round, rounds)
        spent = train_round(self.world, leading, rates, cohort, self.engine)
        costs = dict(zip(self._ahead, spent, strict=True))
        pilot = self.world.rules.is_pilot(cohort.session)
        stage = counters.PILOT if pilot else counters.MAIN
        for track, leader in zip(self.tracks, self._leaders, strict=True):
            led = self.tracks[leader]
            track.model, track.server, track.clients = led.model, led.server, led.clients
            track.left_out, track.abandoned, track.ended = led.left_out, led.abandoned, led.ended
            # A follower is charged as if it had trained alone.
            track.costs = charged(track.costs, stage, costs[leader])

    def routes(self, cohort: Cohort, rounds: int) -> list[Route]:
        """Return the engine's path for each track in such a round, and why."""
        lanes = lanes_of(*self._leading(cohort.round, rounds))
        routes = [self.engine.route(lane, cohort) for lane in lanes]
        by_leader = dict(zip(self._ahead, routes, strict=True))
        return [by_leader[leader] for leader in self._leaders]

    def _leading(self, t: int, rounds: int) -> tuple[list[Track], list[float]]:
        """Return the leading tracks, and their rates in round t of ``rounds``."""
        tracks = [self.tracks[i] for i in self._ahead]
        return tracks, [track.method.rates(rounds)[t - 1] for track in tracks]

    def evaluate(self, test: Examples) -> Scores:
        """Start to evaluate the current models."""
        scores = self.engine.evaluate([self.tracks[i].model for i in self._ahead], test)

        def wait() -> list[Score]:
            by_leader = dict(zip(self._ahead, scores(), strict=True))
            return [by_leader[leader] for leader in self._leaders]

        return wait

    def snapshot(self) -> list[Track]:
        """Return the tracks as they are now; training replaces their fields, never in place."""
        return [replace(track) for track in self.tracks]


class Delayed:
    """Runs each action when the next one is added, and the last one when the block ends.

    The last one runs even if the block ends with an exception: it reports work done before.
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
