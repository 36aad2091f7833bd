"""Who was there when, and what each session holds."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ebbflow.analysis.views.run_view import Event, RunView
from ebbflow.runs.summary import transition

Visit = Literal["joined", "stayed", "returned"]
"""How a device comes to a session: for the first time, from the one before, or after a while."""


class SessionAttendance(NamedTuple):
    """What a session consists of; ``left`` counts devices of the session before."""

    session: int
    transition: int | None
    rounds: int
    devices: int
    joined: int
    returned: int
    left: int
    samples: int
    labels: tuple[int, ...]


class Attendance(NamedTuple):
    """The devices of a run under one seed, ordered by their first session.

    ``visits[i]`` says in which sessions the device ``devices[i]`` was there, and how it came.
    """

    seed: int
    devices: tuple[int, ...]
    names: tuple[str, ...]
    visits: tuple[dict[int, Visit], ...]
    samples: tuple[int, ...]
    sessions: tuple[SessionAttendance, ...]


def presence(view: RunView, seed: int) -> Attendance:
    """Return who was there under a seed; devices are the same for all methods."""
    events: dict[int, Event] = {}
    for key, event in view.starts.items():
        if key.seed == seed:
            events.setdefault(key.session, event)
    visits: dict[int, dict[int, Visit]] = {}
    samples: dict[int, int] = {}
    sessions = []
    before: set[int] = set()
    for session, event in sorted(events.items()):
        here = event["devices"]
        came: list[Visit] = []
        for device in here:
            how: Visit = (
                "joined" if device not in visits else "stayed" if device in before else "returned"
            )
            visits.setdefault(device, {})[session] = how
            came.append(how)
        samples.update(zip(here, event.get("samples", ()), strict=False))
        sessions.append(
            SessionAttendance(
                session,
                transition(session, view.config.pilot.sessions),
                event.get("rounds", view.config.rounds),
                len(here),
                came.count("joined"),
                came.count("returned"),
                len(before - set(here)),
                sum(event.get("samples", ())),
                tuple(event["labels"]),
            )
        )
        before = set(here)
    return Attendance(
        seed,
        tuple(visits),
        tuple(view.device_name(seed, device) for device in visits),
        tuple(visits.values()),
        tuple(samples.get(device, 0) for device in visits),
        tuple(sessions),
    )
