"""How a sweep goes on: a table that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ebbflow.core.names import printable
from ebbflow.sweeps.status import CellStatus, SweepStatus

SECONDS_BETWEEN_LINES = 15.0
STYLES = {"done": "green", "running": "cyan", "failed": "red", "waiting": "dim"}


def summary_line(status: SweepStatus, workers: int | None = None) -> str:
    """Return how far a sweep is, in a line."""
    counts = status.counts
    parts = [f"{counts['done']} of {len(status.cells)} cells done"]
    parts += [f"{counts[state]} {state}" for state in ("running", "failed") if counts[state]]
    parts += [f"{counts['waiting']} waiting"] if counts["waiting"] else []
    left = status.seconds_left(workers)
    if left and not status.over:
        parts.append(f"about {in_time(left)} left")
    return ", ".join(parts)


def in_time(seconds: float | None) -> str:
    """Return a duration as one reads it.

    >>> in_time(3.2), in_time(75), in_time(None)
    ('3 s', '0:01:15', '')
    """
    if seconds is None:
        return ""
    return f"{seconds:.0f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def status_table(cells: Sequence[CellStatus]) -> Table:
    """Return a table of cells."""
    table = Table()
    table.add_column("cell", overflow="fold")
    table.add_column("state")
    table.add_column("where", overflow="fold")
    table.add_column("rounds", justify="right")
    table.add_column("time", justify="right")
    table.add_column("expected", justify="right")
    if any(cell.why for cell in cells):
        table.add_column("why", overflow="fold", ratio=1)
    for cell in cells:
        known = cell.done is not None and cell.rounds is not None
        expected = None if cell.estimate is None else cell.estimate.seconds
        row = [
            escape(cell.name),
            f"[{STYLES[cell.state]}]{cell.state}[/]",
            escape(printable(cell.where)),
            f"{cell.done} of {cell.rounds}" if known else "",
            in_time(cell.seconds) if cell.starts else "",
            in_time(expected),
        ]
        table.add_row(*row, *([escape(printable(cell.why))] if len(table.columns) > 6 else []))
    return table


def shown_first(cells: Sequence[CellStatus], most: int) -> list[CellStatus]:
    """Return as many cells as there is room for: those that run or failed, then others in order."""
    rank = {"running": 0, "failed": 1, "waiting": 2, "done": 3}
    chosen = sorted(cells, key=lambda cell: rank[cell.state])[: max(1, most)]
    names = {cell.name for cell in chosen}
    return [cell for cell in cells if cell.name in names]


class SweepDisplay:
    """Shows how far a sweep is, on standard error; as a context it cleans up after itself."""

    def __init__(self, console: Console | None = None, workers: int | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._workers = workers
        self._live: Live | None = None
        self._told: dict[str, str] = {}
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, status: SweepStatus) -> None:
        """Show how far the sweep is now."""
        if self._live is not None:
            room = self.console.size.height - 6
            self._live.update(self._rendered(status, room), refresh=True)
        else:
            self._lines(status)

    def _rendered(self, status: SweepStatus, room: int) -> RenderableType:
        shown = shown_first(status.cells, room)
        return Group(status_table(shown), escape(summary_line(status, self._workers)))

    def _lines(self, status: SweepStatus) -> None:
        """Write a line for each cell that is done, has failed or was left, and one now and then."""
        for cell in status.cells:
            if cell.state in ("done", "failed") and self._told.get(cell.name) != cell.state:
                self._told[cell.name] = cell.state
                done = f"{cell.name}: done, {in_time(cell.seconds)}"
                self.say(done if cell.state == "done" else f"{cell.name}: failed: {cell.why}")
            elif cell.state == "waiting" and cell.why and self._told.get(cell.name) != cell.why:
                self._told[cell.name] = cell.why
                self.say(f"left by {cell.why}")
        if time.monotonic() - self._shown >= SECONDS_BETWEEN_LINES and not status.over:
            self._shown = time.monotonic()
            self.say(summary_line(status, self._workers))

    def skip(self, status: SweepStatus) -> None:
        """Take note of what is done already: nothing is said of it."""
        self._told |= {c.name: c.state for c in status.cells if c.state in ("done", "failed")}

    def say(self, text: str) -> None:
        """Write a line, above the table if there is one."""
        self.console.print(printable(text), soft_wrap=True, highlight=False, markup=False)
