"""Runs a federation's app on this machine from beginning to end, with nodes that take turns.

The server's part of the app says in its records when a session is over. Then nodes that are not
awaited in the next one leave, and those that are awaited come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder
from ebbflow.flower.launch.control import SeenRun
from ebbflow.flower.launch.federation_settings import Setting
from ebbflow.flower.launch.folder import PRIVATE, node_name
from ebbflow.flower.launch.launcher import Federation
from ebbflow.flower.saving import DONE, OVER, is_written_to
from ebbflow.runs.records import read_lines

DEAD = 3.0
"""Seconds after which a server that has let go of its folder, and is not done, is given up."""

Turns = tuple[frozenset[int], ...]
"""The nodes that are awaited in each session, over and over; empty: all of them, always."""


def turns_of(text: str) -> Turns:
    """Return who is awaited in each session, from the app's setting ``turns``.

    >>> [sorted(group) for group in turns_of("0 1 2, 2 3 4")]
    [[0, 1, 2], [2, 3, 4]]
    """
    try:
        groups = [frozenset(map(int, part.split())) for part in text.split(",") if part.strip()]
    except ValueError:
        raise EbbflowError(
            f'turns = "{text}" in federation.toml names no nodes: write numbers, with commas '
            'between sessions, as in "0 1 2, 2 3 4"'
        ) from None
    return tuple(groups)


@dataclass(frozen=True)
class Recorded:
    """What a federation's server has written so far."""

    history: Path

    def events(self) -> list[dict[str, Any]]:
        """Return its events."""
        return list(read_lines(self.history / "events.jsonl"))

    def rounds(self) -> list[dict[str, Any]]:
        """Return its rounds."""
        return list(read_lines(self.history / "rounds.jsonl"))

    @property
    def done(self) -> bool:
        """Whether all sessions are over, whatever the app does then."""
        events = self.events()
        return bool(events) and events[-1]["event"] == DONE

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on from."""
        return self.history.is_dir() and any(self.history.glob("checkpoint-*.json"))


class ServerDiedError(EbbflowError):
    """The server's part of the app is gone, and its run is not over."""

    def __init__(self, log: Path) -> None:
        super().__init__(f"the server's part of the app has died: see {log}, and resume")


class Driver:
    """Follows a run, and lets nodes of this machine come and go, if it has any."""

    def __init__(
        self,
        federation: Federation,
        turns: Turns,
        tell: Callable[[str], None],
        *,
        local_nodes: bool = True,
    ) -> None:
        self.federation, self.turns, self._tell = federation, turns, tell
        self.local_nodes = local_nodes
        self._alive = False
        self._resting = False  # a run is followed whose sessions were all over
        self._lost: float | None = None  # since when the server has let go of its folder
        self.recorded = Recorded(federation.folder.run / "history")
        self._told = (len(self.recorded.events()), len(self.recorded.rounds()))

    def go(self, settings: dict[str, Setting] | None = None) -> SeenRun:
        """Start the app, or follow it if it is running, until it ends."""
        running = self._running()
        self._resting = running is not None and self.recorded.done
        # What an app still asks after its last session, it asks the nodes of that one.
        self._bring(self._session() - self._resting)
        if running is None:
            folder = self.federation.folder.run
            make_folder(folder, PRIVATE)
            running = self.federation.submit({"folder": str(folder), **(settings or {})})
        return self.federation.wait(running, watch=self._follow)

    def _running(self) -> int | None:
        """Return the run that is under way; one whose server is dead is ended.

        A server is alive as long as its process is, also before its first session and after its
        last: what it computes then is nowhere else.
        """
        with self.federation.control() as control:
            for run in control.runs():
                if not run.finished and self._is_alive():
                    return run.run_id
                if not run.finished:  # Flower would notice after a minute
                    control.stop_run(run.run_id)
        return None

    def _is_alive(self) -> bool:
        return is_written_to(self.recorded.history) or self.federation.has_tasks()

    def _session(self) -> int:
        """Return the number of the session that goes on or comes next."""
        return 1 + len([event for event in self.recorded.events() if event["event"] == OVER])

    def wanted(self, session: int) -> Sequence[int]:
        """Return the nodes of a session."""
        if not self.turns:
            return range(self.federation.settings.nodes.count)
        return sorted(self.turns[(session - 1) % len(self.turns)])

    def _bring(self, session: int) -> None:
        """Let the nodes of a session come, and the others leave."""
        federation, wanted = self.federation, set(self.wanted(session))
        if not self.local_nodes:
            return
        here = {
            number
            for number in federation.folder.public_keys()
            if federation.processes.running(node_name(number))
        }
        for number in sorted(here - wanted):
            self._tell(f"node {number} leaves")
            federation.stop_node(number)
        for number in sorted(wanted - here):
            self._tell(f"node {number} comes")
            federation.start_node(number)
        federation.wait_for_nodes(sorted(wanted - here))

    def _notice_death(self) -> None:
        """Raise an error if the server's part of the app has died, long before Flower says so."""
        if is_written_to(self.recorded.history):
            self._alive, self._lost = True, None
        elif self._alive and not self.recorded.done:
            now = time.monotonic()
            self._lost = now if self._lost is None else self._lost
            if now - self._lost > DEAD:
                raise ServerDiedError(self.federation.folder.log("executor"))

    def _follow(self, seen: SeenRun) -> None:
        """Tell what is new, and change the nodes when a session is over and another follows."""
        if not seen.finished:
            self._notice_death()
        events, rounds = self.recorded.events(), self.recorded.rounds()
        # A server that goes on cuts its records back to its last checkpoint.
        known_events = min(self._told[0], len(events))
        known_rounds = min(self._told[1], len(rounds))
        self._told = len(events), len(rounds)
        for line in rounds[known_rounds:]:
            if line["round"]:
                self._tell(_said(line))
        for event in events[known_events:]:
            self._tell(event["said"])
        over = [event for event in events[known_events:] if event["event"] == OVER]
        awake = self._resting and not self.recorded.done  # it had more to do after all
        self._resting = self._resting and not awake
        if awake or (over and not over[-1].get("last")):
            self._bring(self._session())


def _said(line: dict[str, Any]) -> str:
    """Return a round as a sentence."""
    scores = ", ".join(
        f"{name} {value:.4g}"
        for metrics in (line["server"], line["evaluate"])
        for name, value in metrics.items()
        if isinstance(value, int | float)
    )
    used = f"{len(line['used'])} of {line['asked']} updates"
    return f"session {line['session']}, round {line['round']}: {used}, {line['seconds']:.1f} s" + (
        f", {scores}" if scores else ""
    )
