"""Who was there when, and what each session holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypedDict

from ebbflow.analysis.views.presence import Attendance, SessionAttendance, presence
from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.page.plain import text

MOST_DEVICES = 1000
"""Rows of the picture; of more devices, it shows every second, third, ..."""
MOST_LABELS = 600
"""Characters of a session's labels."""
SIGNS = {"joined": "1", "stayed": "2", "returned": "3"}
ABSENT = "0"


class SessionRow(TypedDict):
    """What a session consists of; ``left`` counts devices of the session before."""

    session: int
    transition: int | None
    rounds: int
    devices: int
    joined: int
    returned: int
    left: int
    samples: int
    label_count: int
    labels: str


class PresenceFacts(TypedDict):
    """The devices under one seed. ``visits`` has a sign for each session: see `SIGNS`.

    ``every`` is more than 1 if there are too many devices to show all of them.
    """

    seed: int
    devices: int
    every: int
    names: list[str]
    samples: list[int]
    visits: list[str]
    sessions: list[SessionRow]


def presence_facts(view: RunView) -> list[PresenceFacts]:
    """Return who was there, by seed."""
    return [_facts(view, presence(view, seed)) for seed in view.seeds]


def _facts(view: RunView, found: Attendance) -> PresenceFacts:
    count = len(found.devices)
    every = max(1, -(-count // MOST_DEVICES))
    sessions = [facts.session for facts in found.sessions]
    return PresenceFacts(
        seed=found.seed,
        devices=count,
        every=every,
        names=[text(name) for name in found.names[::every]],
        samples=list(found.samples[::every]),
        visits=[
            "".join(SIGNS[visits[s]] if s in visits else ABSENT for s in sessions)
            for visits in found.visits[::every]
        ],
        sessions=[_session_row(view, facts) for facts in found.sessions],
    )


def _session_row(view: RunView, facts: SessionAttendance) -> SessionRow:
    numbered = [view.label_name(label) == str(label) for label in facts.labels]
    if all(numbered):
        labels = ranges(facts.labels)
    else:
        labels = ", ".join(text(view.label_name(label), 60) for label in facts.labels)
    return SessionRow(
        session=facts.session,
        transition=facts.transition,
        rounds=facts.rounds,
        devices=facts.devices,
        joined=facts.joined,
        returned=facts.returned,
        left=facts.left,
        samples=facts.samples,
        label_count=len(facts.labels),
        labels=text(labels, MOST_LABELS),
    )


def ranges(labels: Sequence[int]) -> str:
    """Return whole numbers in short.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0–2, 5, 7, 8'
    """
    groups = groupby(enumerate(sorted(labels)), key=lambda pair: pair[1] - pair[0])
    parts = []
    for _, group in groups:
        own = [label for _, label in group]
        parts += [f"{own[0]}–{own[-1]}"] if len(own) > 2 else [str(label) for label in own]
    return ", ".join(parts)
