"""What a sweep will take, as a table, a sentence and a record."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from ebbflow.simulation.ceilings import available_memory, in_words, room_on_disk
from ebbflow.sweeps.display import in_time
from ebbflow.sweeps.estimates import CellEstimate
from ebbflow.sweeps.starting import PreparedSweep

NOT_TRIED = "too large to try here"


def sweep_estimate_table(ready: PreparedSweep) -> tuple[Table, str]:
    """Return a table of all cells with what each takes, and a line with what all take."""
    table = Table(title="before the sweep", title_justify="left")
    table.add_column("cell", overflow="fold")
    table.add_column("digest")
    for name in ("time", "memory", "disk"):
        table.add_column(name, justify="right")
    for cell in ready.plan.cells:
        estimate = ready.estimates.get(cell.name)
        if estimate is None:  # it is over, and what was known of it is lost
            table.add_row(escape(cell.name), cell.digest)
            continue
        time = NOT_TRIED if estimate.seconds is None else in_time(max(1, estimate.seconds))
        sizes = in_words(estimate.memory), in_words(estimate.disk)
        table.add_row(escape(cell.name), cell.digest, time, *sizes)
    return table, sentence(ready)


def sentence(ready: PreparedSweep) -> str:
    """Return in a sentence what a sweep takes."""
    count, workers = len(ready.plan.cells), max(1, ready.workers)
    cells = f"{count} cell{'s' if count > 1 else ''} in {ready.folder.path}"
    seconds = ready.seconds
    time = "for a time that is not known" if seconds is None else f"about {in_time(seconds)}"
    with_workers = f"with {workers} worker{'s' if workers > 1 else ''}"
    left = available_memory()
    there = "" if left is None else f" of {in_words(left)}"
    return (
        f"{cells}: {time} {with_workers}; the largest needs {in_words(ready.memory)}{there} of "
        f"memory, all {in_words(ready.disk)} of {in_words(room_on_disk(ready.folder.path))} on disk"
    )


def estimate_record(ready: PreparedSweep) -> dict[str, Any]:
    """Return what ``--dry-run --json`` prints; sizes are bytes."""
    return {
        "folder": ready.folder.path,
        "name": ready.plan.name,
        "varied": ready.plan.varied,
        "workers": ready.workers,
        "seconds": ready.seconds,
        "memory": {"largest": ready.memory, "available": available_memory()},
        "disk": {"total": ready.disk, "free": room_on_disk(ready.folder.path)},
        "cells": [
            {
                "name": cell.name,
                "digest": cell.digest,
                "settings": {key: cell.value(key) for key in ready.plan.varied},
                **_facts(ready.estimates.get(cell.name)),
            }
            for cell in ready.plan.cells
        ],
    }


def _facts(estimate: CellEstimate | None) -> dict[str, Any]:
    return dict.fromkeys(CellEstimate._fields) if estimate is None else estimate._asdict()
