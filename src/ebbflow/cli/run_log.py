"""run.log: what a person wants to know of a run afterwards, a line for each thing that happened."""

from __future__ import annotations

import os
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ebbflow.cli.stopping import Stopping
from ebbflow.core.errors import EbbflowWarning
from ebbflow.core.names import printable, shortened
from ebbflow.runs.environment import versions
from ebbflow.runs.plain import unshared
from ebbflow.runs.records import LOG
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    RoundFinished,
    RunFinished,
    RunStarted,
    SessionFinished,
    SessionStarted,
)


class RunLog(Callback):
    """Writes the log of a run, from its start or its resumption on.

    Nothing is computed from it, and a log that cannot be written ends no run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._now = _now()
        self._began = self._session_began = time.monotonic()
        self._signals: Stopping | None = None
        self._waiting: list[str] | None = []
        """Lines from before the run was planned; None from then on."""
        self._told: set[str] = set()

    @contextmanager
    def listening(self, signals: Stopping) -> Iterator[None]:
        """Take down the warnings that Python gives in the meantime; signals may end the run."""
        self._signals, usual = signals, warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, EbbflowWarning):
                self.warn(str(message))
            usual(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]
        try:
            yield
        finally:
            warnings.showwarning = usual

    def warn(self, text: str) -> None:
        """Take down a warning, once."""
        if text not in self._told:
            self._told.add(text)
            self._note(f"warning: {text}")

    def leave(self) -> None:
        """Take down that the process is ended here and now."""
        if self._waiting is None:
            self._note(f"stopped at once by {self._reason}, after {self._seconds}")

    @property
    def _reason(self) -> str:
        return "somebody" if self._signals is None else self._signals.reason

    @property
    def _seconds(self) -> str:
        return f"{time.monotonic() - self._began:.3f} s"

    def run_started(self, event: RunStarted) -> None:
        """Take down the command, the versions, and where a run goes on."""
        waiting, self._waiting = self._waiting or [], None
        with suppress(OSError):
            unshared(self._path)
        word = "started" if event.resumed is None else "resumed"
        self._write(f"{self._now}  {word} by: {command_line()}")
        found = ", ".join(f"{name} {number}" for name, number in versions().items())
        self._note(f"versions: {found}; process {os.getpid()}")
        if event.resumed is not None:
            seed, session, t = event.resumed
            at = "its end" if t is None else f"round {t}"
            self._note(f"going on after seed {seed}, session {session}, {at}")
        for line in waiting:
            self._write(line)
        self._session_began = time.monotonic()

    def session_started(self, event: SessionStarted) -> None:
        """Take down warnings."""
        self._session_began = time.monotonic()
        for line in event.recorded:
            if line["event"] == "warning":
                who = f"session {line['session']}, {line['method']}: " if "method" in line else ""
                self.warn(f"seed {event.seed}, {who}{line['text']}")

    def round_finished(self, event: RoundFinished) -> None:
        """Take down the first time that a method goes without some of the devices."""
        for line in event.recorded:
            if line["event"] == "left_out":
                who = f"{line['algorithm']}, {line['method']}"
                if who not in self._told:
                    self._told.add(who)
                    count, reasons = len(line["devices"]), ", ".join(dict.fromkeys(line["reasons"]))
                    self._note(
                        f"warning: seed {event.seed}, session {event.session.index}, round "
                        f"{event.round}, {who}: left out for the first time: {count} of the "
                        f"devices ({reasons})"
                    )

    def method_ended(self, event: MethodEnded) -> None:
        """Take down why a method cannot go on."""
        where = f"seed {event.seed}, session {event.session.index}, {event.algorithm}, "
        self._note(f"warning: {where}{event.method} ended: {event.reason}")

    def session_finished(self, event: SessionFinished) -> None:
        """Take down how long a session took."""
        now = time.monotonic()
        seconds, self._session_began = now - self._session_began, now
        place = f"session {event.session.index} of {len(event.world.sessions)}"
        self._note(f"seed {event.seed}, {place} finished after {seconds:.3f} s")

    def run_finished(self, event: RunFinished) -> None:
        """Take down how the run ended."""
        texts = {
            "finished": f"finished after {self._seconds}",
            "stopped": f"stopped by {self._reason} after {self._seconds}: resume to go on",
            "failed": f"failed after {self._seconds}: {type(event.error).__name__}: {event.error}",
        }
        self._note(texts[event.outcome])

    def _note(self, text: str) -> None:
        line = f"{_now()}  {text}"
        if self._waiting is None:
            self._write(line)
        else:
            self._waiting.append(line)

    def _write(self, line: str) -> None:
        text = f"{shortened(printable(line), 4000)}\n".encode(errors="replace")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(OSError):
            handle = os.open(self._path, flags, 0o666)
            try:
                os.write(handle, text)
            finally:
                os.close(handle)


def command_line() -> str:
    """Return the command as it could be typed again."""
    program = Path(sys.argv[0])
    module = program.name == "__main__.py"
    called = ["python", "-m", program.parent.name] if module else [program.name]
    return shlex.join([*called, *sys.argv[1:]])


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
