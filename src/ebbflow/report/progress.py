"""Progress of a run: a bar on a terminal, plain lines elsewhere.

Both are callbacks and write to standard error, so that standard output holds only
results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ebbflow.config.resolved import Config
from ebbflow.runs.records import Round
from ebbflow.simulation.callbacks import Callback, MethodEnded, RoundFinished, SessionStarted

if TYPE_CHECKING:
    from ebbflow.core.types import Session
    from ebbflow.simulation.world import World

SECONDS_BETWEEN_LINES = 15.0


def progress_display(config: Config, console: Console | None = None) -> ProgressDisplay:
    """Return a bar if the output goes to a terminal, otherwise lines."""
    console = console or Console(stderr=True)
    return ProgressBar(config, console) if console.is_terminal else ProgressLines(config, console)


class ProgressDisplay(Callback):
    """What both displays share: the position in the run, and the warnings."""

    def __init__(self, config: Config, console: Console) -> None:
        self.config = config
        self.console = console
        self._warned: set[str] = set()
        self._ended: list[str] = []

    def session_started(self, event: SessionStarted) -> None:
        """Show warnings: one for each method, and each one that is about the run as a whole."""
        self._say_who_ended()
        for line in event.recorded:
            if line["event"] not in ("note", "warning"):
                continue
            text = line["text"]
            kind = text
            if "method" in line:
                kind = f"{line['algorithm']} {line['method']}"
                where = f"seed {line['seed']}, session {line['session']}, {line['method']}"
                text = f"{where}: {text}"
            if kind not in self._warned:
                self._warned.add(kind)
                word = "warning" if line["event"] == "warning" else "note"
                style = "yellow" if word == "warning" else "dim"
                self.console.print(f"[{style}]{word}[/] {escape(text)}", soft_wrap=True)

    def round_finished(self, event: RoundFinished) -> None:
        """Show a round, and the first time that a method goes without some of the devices."""
        self._say_who_ended()
        for track in event.tracks:
            missing, kind = track.left_out, f"left out {track.method.group} {track.method.name}"
            if missing is not None and kind not in self._warned:
                self._warned.add(kind)
                where = f"seed {event.seed}, session {event.session.index}, round {missing.round}"
                left = "; the round is abandoned" if missing.abandoned else ""
                count = len(missing.devices)
                text = (
                    f"{where}, {track.method.name}: {count} device{'s are' if count > 1 else ' is'}"
                    f" left out ({', '.join(dict.fromkeys(missing.reasons))}){left}"
                )
                self.console.print(f"[yellow]warning[/] {escape(text)}", soft_wrap=True)

    def method_ended(self, event: MethodEnded) -> None:
        """Remember which method cannot go on, and why."""
        where = f"seed {event.seed}, {event.algorithm}, {event.method}"
        self._ended.append(f"{where} has ended, the others go on: {event.reason}")

    def _say_who_ended(self) -> None:
        """Show who has ended, now that others do go on; if none did, the run's error says it."""
        for text in self._ended:
            self.console.print(f"[yellow]warning[/] {escape(text)}", soft_wrap=True)
        self._ended = []

    def close(self) -> None:
        """Stop showing."""

    def _position(self, world: World, session: Session, t: int) -> tuple[int, int]:
        """Return the rounds done and those of the whole run, if all seeds have as many rounds."""
        lengths = world.lengths
        before = self.config.seeds.index(world.seed) * sum(lengths)
        done = before + sum(lengths[: session.index - 1]) + t
        return done, len(self.config.seeds) * sum(lengths)

    def _status(self, world: World, session: Session, rounds: Sequence[Round]) -> str:
        scores = "  ".join(
            f"{method} {fmean(r.accuracy for r in rounds if r.method == method):.1f}"
            for method in dict.fromkeys(r.method for r in rounds)
        )
        algorithms = len({r.algorithm for r in rounds})
        of = f"mean of {algorithms} algorithms: " if algorithms > 1 else ""
        return (
            f"seed {world.seed}  session {session.index}/{len(world.sessions)}  round "
            f"{rounds[0].round}/{session.rounds}  {len(session.devices)} devices  {of}{scores}"
        )


class ProgressBar(ProgressDisplay):
    """A bar with the time left and the position in the run."""

    def __init__(self, config: Config, console: Console) -> None:
        super().__init__(config, console)
        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:3.0f}%"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def round_finished(self, event: RoundFinished) -> None:
        """Move the bar."""
        super().round_finished(event)
        done, total = self._position(event.world, event.session, event.round)
        status = self._status(event.world, event.session, event.results)
        if self._task is None:
            # Start here: rounds done before a resume must not count towards the speed.
            self._progress.start()
            self._task = self._progress.add_task(status, total=total, completed=done)
        self._progress.update(self._task, completed=done, description=status)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class ProgressLines(ProgressDisplay):
    """A line at the end of each session, and every few seconds in between."""

    def __init__(self, config: Config, console: Console) -> None:
        super().__init__(config, console)
        self._began = self._shown = time.monotonic()
        self._first: int | None = None

    def round_finished(self, event: RoundFinished) -> None:
        """Write a line if one is due."""
        super().round_finished(event)
        done, total = self._position(event.world, event.session, event.round)
        if self._first is None:
            self._first = done - 1
        now = time.monotonic()
        if event.round < event.session.rounds and now - self._shown < SECONDS_BETWEEN_LINES:
            return
        self._shown = now
        left = (now - self._began) / (done - self._first) * (total - done)
        status = self._status(event.world, event.session, event.results)
        self.console.print(
            f"{status}  {left:.0f} s left", soft_wrap=True, highlight=False, markup=False
        )
