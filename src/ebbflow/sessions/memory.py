"""What a method remembers, and how a session begins and ends.

This is the server's side of the paper's Algorithm 1, without its rounds: `begin` is
"Pseudo-Gradient Computation" and "Initial Model Construction"; `finish` saves w^(s,T+1) and builds
the pilot model. Neither knows about data, devices or engines: between the two, a simulation or a
real federation trains ``memory.model`` in rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ebbflow.core import vector
from ebbflow.core.start import DevicesPresent, Situation, Start, StartingPoint
from ebbflow.core.types import Layout, ModelState, PastSession
from ebbflow.runs.retention import Retention, keep_all

NOT_FINITE = (
    "the model that the start chose is not finite, because a past session is not: went on with the "
    "carried-over model"
)


@dataclass
class Memory:
    """What one method remembers.

    Attributes:
        model: The current global model w^(s,t).
        pilots: The final models of the pilot sessions so far, until the pilot model is built.
        pilot: The pilot model w_Pilot, once session P is over.
        past: The kept sessions after the pilot sessions, oldest first (the lists Q1 and Q2).
        start: Where the current session started.
        devices: The devices of the current session, where they are known.

    Tensors are replaced, never changed in place, so that memories may share them.
    """

    model: ModelState
    pilots: list[ModelState] = field(default_factory=list)
    pilot: ModelState | None = None
    past: list[PastSession] = field(default_factory=list)
    start: StartingPoint | None = None
    devices: tuple[int, ...] = ()


class SessionRules(NamedTuple):
    """How sessions follow each other.

    Attributes:
        pilot_sessions: P.
        combine: How the pilot model is built: plain or exponential moving average.
        decay: The moving average's beta.
        carry_over: Whether session P+1 continues from the last pilot session, as in the paper's
            text, or starts afresh from the initial model, as in its authors' code.
        retention: Which past sessions are kept.
    """

    pilot_sessions: int = 1
    combine: Literal["average", "ema"] = "average"
    decay: float = 0.5
    carry_over: bool = True
    retention: Retention = keep_all

    def is_pilot(self, session: int) -> bool:
        """Whether a session is one of the first P."""
        return session <= self.pilot_sessions

    def starts_afresh(self, session: int) -> bool:
        """Whether a session begins with the initial model instead of the carried-over one."""
        return session == self.pilot_sessions + 1 and not self.carry_over


def begin(
    memory: Memory,
    session: int,
    start: Start,
    rules: SessionRules,
    *,
    initial: ModelState,
    layout: Layout,
    present: DevicesPresent,
    known_labels: tuple[int, ...] = (),
) -> StartingPoint:
    """Choose w^(s,1), remember where it came from, and return the starting point.

    Args:
        memory: The method's memory; its model is the session's starting model afterwards.
        session: The number s of the session, from one.
        start: How the method starts sessions; pilot sessions continue from the current model.
        rules: How sessions follow each other.
        initial: The model w^(1,1), for a fresh start.
        layout: Where the model's tensors lie in its vector.
        present: The devices of this session: they run the V auxiliary rounds, or answer questions
            about mixtures of models, if the start asks for it.
        known_labels: The labels of the previous session, if they are known.
    """
    if rules.is_pilot(session) or memory.pilot is None:
        point = StartingPoint(memory.model)
    else:
        fresh = rules.starts_afresh(session)
        situation = Situation(
            session=session,
            carried=on_device(initial if fresh else memory.model, "cpu"),
            goes_on=not fresh,
            known_labels=() if fresh else known_labels,
            pilot=memory.pilot,
            initial=on_device(initial, "cpu"),
            past=tuple(memory.past),
            layout=layout,
            probe=present.probe,
            survey=present.survey,
            devices=present.numbers,
        )
        point = _finite(start.choose(situation), situation.carried)
    memory.start, memory.model, memory.devices = point, point.model, present.numbers
    return point


def _finite(point: StartingPoint, carried: ModelState) -> StartingPoint:
    """Return the point, or the carried-over model if a past session has spoilt what was chosen."""
    if all(map(vector.all_finite, point.model)):
        return point
    return StartingPoint(
        carried,
        signature=point.signature,
        kept=None if point.kept is None else carried,
        warnings=(*point.warnings, NOT_FINITE),
    )


def finish(memory: Memory, session: int, rules: SessionRules) -> None:
    """Save w^(s,T+1), for the pilot model or as a past session that later ones may draw on."""
    # A copy: nothing that happens to the current model may change the past.
    final = ModelState(*(tensor.detach().clone() for tensor in on_device(memory.model, "cpu")))
    if rules.is_pilot(session):
        memory.pilots = [*memory.pilots, final]
        if session == rules.pilot_sessions:
            weights = pilot_weights(len(memory.pilots), rules.combine, rules.decay)
            memory.pilot = vector.mix(memory.pilots, weights)
            memory.pilots = []
        return
    point = memory.start or StartingPoint(memory.model)
    over = PastSession(session, final, point.signature, point.kept, memory.devices)
    past = [*memory.past, over]
    memory.past = [past[place] for place in rules.retention(past)]


def pilot_weights(sessions: int, combine: str, decay: float) -> list[float]:
    """Return the weights of the pilot sessions' models: 1/P each, or the EMA's gamma_s.

    gamma_1 = beta^(P-1) and gamma_s = (1 - beta) beta^(P-s) for s = 2..P; they add up to one.

    >>> pilot_weights(3, "ema", 0.5)
    [0.25, 0.25, 0.5]
    """
    if combine == "average":
        return [1 / sessions] * sessions
    oldest = decay ** (sessions - 1)
    return [oldest] + [(1 - decay) * decay ** (sessions - s) for s in range(2, sessions + 1)]


def on_device(model: ModelState, device: str) -> ModelState:
    """Return a model on a device, without copying it if it is there already."""
    return ModelState(model.theta.to(device), model.buffers.to(device))
