"""The state of each compared method, and which methods have the same state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ebbflow.core.algorithm import Algorithm
from ebbflow.core.counters import Costs
from ebbflow.core.types import ModelState, State
from ebbflow.sessions.memory import Memory
from ebbflow.simulation.guard import LeftOut
from ebbflow.simulation.methods import Method
from ebbflow.simulation.scores import FinalScores
from ebbflow.simulation.world import World


@dataclass(kw_only=True)
class Track(Memory):
    """A method's memory, and its state while a session is trained.

    Attributes:
        method: The method.
        algorithm: The session's algorithm: the method's own, unless its start adapts it.
        server: The algorithm's state at the server.
        clients: The algorithm's state on each device that has taken part.
        costs: The costs of the session so far, by stage.
        asked: The devices that were asked about mixtures of models when the session began.
        left_out: The participants that the last round went without, if any.
        abandoned: The rounds in a row that have been abandoned.
        ended: Why the method cannot go on, if it has diverged.
        reached: What the final model of the last session achieves.
    """

    method: Method
    algorithm: Algorithm
    server: State = field(default_factory=dict)
    clients: dict[int, State] = field(default_factory=dict)
    costs: Costs = field(default_factory=dict)
    asked: tuple[int, ...] = ()
    left_out: LeftOut | None = None
    abandoned: int = 0
    ended: str = ""
    reached: FinalScores | None = None


def new_tracks(world: World, methods: Sequence[Method]) -> list[Track]:
    """Return a track for each method at the very beginning: w^(1,1) is the same for all."""
    return [
        Track(model=world.initial, method=method, algorithm=method.algorithm) for method in methods
    ]


def leaders_of(tracks: Sequence[Track]) -> list[int]:
    """Return for each track the first one with the same state, algorithm and rates."""
    leaders: list[int] = []
    for i, track in enumerate(tracks):
        alike = (j for j in range(i) if leaders[j] == j and _same_state(tracks[j], track))
        leaders.append(next(alike, i))
    return leaders


def _same_state(a: Track, b: Track) -> bool:
    return (
        _same_algorithm(a, b)
        and a.method.rates is b.method.rates
        and a.abandoned == b.abandoned
        and _equal_models(a.model, b.model)
        and _equal_states(a.server, b.server)
        and a.clients.keys() == b.clients.keys()
        and all(_equal_states(a.clients[device], b.clients[device]) for device in a.clients)
    )


def _same_algorithm(a: Track, b: Track) -> bool:
    if a.algorithm is b.algorithm:
        return True
    # The same start adapted the same algorithm: the result is the same if the teacher is.
    if a.method.name != b.method.name or a.method.algorithm is not b.method.algorithm:
        return False
    if a.start is None or b.start is None or a.start.teacher is None or b.start.teacher is None:
        return False
    same_labels = a.start.teacher_labels == b.start.teacher_labels
    return same_labels and _equal_models(a.start.teacher, b.start.teacher)


def _equal_models(a: ModelState, b: ModelState) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _equal_states(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
