"""The table of what a run will take."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from ebbflow.simulation.estimate import Estimate


def estimate_table(planned: Estimate, seconds: float, available: int | None, room: int) -> Table:
    """Return what a run will take beside what there is, and what takes most of it.

    Args:
        planned: The estimate.
        seconds: The time, as it was measured.
        available: Bytes of memory that are available, if that is known.
        room: Bytes that are left on the disk.
    """
    from ebbflow.simulation.ceilings import in_words, largest  # noqa: PLC0415 - imports torch

    table = Table(title="before the run", title_justify="left")
    table.add_column("")
    table.add_column("estimate", justify="right")
    table.add_column("there is", justify="right")
    table.add_column("most of it")
    for name, number in (
        ("sessions", planned.sessions),
        ("devices in a session, at most", planned.devices),
        ("rounds", planned.rounds),
        ("methods x algorithms x seeds", planned.runs),
        ("parameters", planned.parameters),
    ):
        table.add_row(name, f"{number:,}", "", "")
    known = "" if available is None else in_words(available)
    memory = in_words(sum(planned.memory.values()))
    table.add_row("memory, beside the data", memory, known, largest(planned.memory))
    table.add_row("memory, of the whole process", in_words(planned.most_memory), "", "")
    table.add_row("disk, finished", in_words(sum(planned.disk.values())), "", largest(planned.disk))
    table.add_row("disk, at most", in_words(planned.most_disk), in_words(room), "")
    table.add_row("time", str(timedelta(seconds=max(1, round(seconds)))), "", "")
    return table


def estimate_record(
    planned: Estimate, seconds: float, available: int | None, room: int
) -> dict[str, Any]:
    """Return what ``--dry-run --json`` prints; sizes are bytes."""
    return {
        "sessions": planned.sessions,
        "devices": planned.devices,
        "rounds": planned.rounds,
        "runs": planned.runs,
        "parameters": planned.parameters,
        "seconds": seconds,
        "memory": {
            "total": sum(planned.memory.values()),
            "process": planned.most_memory,
            "available": available,
            "parts": planned.memory,
        },
        "disk": {
            "finished": sum(planned.disk.values()),
            "most": planned.most_disk,
            "free": room,
            "parts": planned.disk,
        },
    }
