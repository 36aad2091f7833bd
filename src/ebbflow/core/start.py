"""The `Start` record: a way to choose the model that a session begins with.

A start runs at the server when a session begins. It sees what one method remembers, and may ask
the devices present to run a short probe, or to answer questions about mixtures of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ebbflow.core.algorithm import Algorithm
from ebbflow.core.survey import Panel, Survey, SurveyPlan
from ebbflow.core.types import Layout, ModelState, PastSession

Probe = Callable[[ModelState], ModelState]
"""Runs the V auxiliary rounds from a model, with fresh state that is discarded afterwards."""


def nobody_to_ask(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
    """Refuse a survey, where the caller has no devices to ask."""
    raise ValueError("this start asks devices, and the caller has given it none to ask")


class DevicesPresent(NamedTuple):
    """What the devices of a session can be asked to do, and who they are, where that is known."""

    probe: Probe
    survey: Survey = nobody_to_ask
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Situation:
    """What a start knows when session s begins.

    Attributes:
        session: Its number s, from P+1 on: pilot sessions continue from the current model.
        carried: The carried-over model w^(s-1,T+1); the initial model after a fresh start.
        goes_on: Whether ``carried`` comes from the previous session; false after a fresh start.
        known_labels: The labels of that session, where the caller knows them.
        pilot: The pilot model w_Pilot.
        initial: The initial model w^(1,1).
        past: The kept sessions among P+1..s-1, oldest first: the paper's Q1 and Q2.
        layout: Where the model's tensors lie in its vector.
        probe: Runs the probe and charges it to the method.
        survey: Sends models to devices of the session, which then answer questions about mixtures
            of these models; charges it to the method.
        devices: The devices of the session, where the caller knows them.
    """

    session: int
    carried: ModelState
    goes_on: bool
    known_labels: tuple[int, ...]
    pilot: ModelState
    initial: ModelState
    past: tuple[PastSession, ...]
    layout: Layout
    probe: Probe
    survey: Survey = nobody_to_ask
    devices: tuple[int, ...] = ()


class StartingPoint(NamedTuple):
    """Where a session starts, and why.

    ``weights`` and ``distances`` are keyed by the past session that was drawn on; ``signature`` is
    the session's pseudo-gradient G_s if the start ran the probe; ``teacher`` is a model that the
    session's training distils from, and ``teacher_labels`` are the labels it has learnt.
    ``mixture`` holds the weights of all models that were mixed, by name, where not all of them are
    past sessions' final models. ``kept`` is the starting model, if later sessions need it
    (`PastSession.start`). ``warnings`` are sentences for the user.
    """

    model: ModelState
    weights: Mapping[int, float] = {}
    distances: Mapping[int, float] = {}
    signature: Tensor | None = None
    teacher: ModelState | None = None
    teacher_labels: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    mixture: Mapping[str, float] = {}
    kept: ModelState | None = None


def _unchanged(algorithm: Algorithm, point: StartingPoint) -> Algorithm:
    return algorithm


class Start(NamedTuple):
    """A way to start sessions. Only ``choose`` has to be given.

    Attributes:
        choose: Chooses w^(s,1), and says what to record about the choice.
        algorithm: The algorithm that sessions train with, if it is not the compared one.
        adapt: Returns a session's algorithm, given the method's algorithm and the starting point;
            for example, one that distils from a teacher.
        sketch_distance: The distance for which sketches are kept beside past signatures, if any.
        surveys: Whether ``choose`` surveys the devices; a federation that cannot allow that then
            says so before its first session.
    """

    choose: Callable[[Situation], StartingPoint]
    algorithm: str | None = None
    adapt: Callable[[Algorithm, StartingPoint], Algorithm] = _unchanged
    sketch_distance: str | None = None
    surveys: bool = False
