"""Tables that commands print: the fit, and the list of studies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from chang2025.fit import LENGTHS, Fit
from chang2025.reports import FIGURES
from chang2025.running import is_done
from chang2025.speed import seconds
from chang2025.studies import STUDIES, cells_of, default_seeds
from chang2025.study_cells import SCALES
from chang2025.windows import Window


def fit_tables(fitted: Fit) -> Iterator[Table]:
    """Yield every reading at its best windows, and the best reading by window and method."""
    table = Table(
        title="Mean absolute difference from the paper (points), by reading", title_justify="left"
    )
    table.add_column("reading", no_wrap=True)
    for head in ("best window", "points", "best early window", "points"):
        table.add_column(head, justify="right")
    for name, errors in fitted.errors.items():
        best = [min(_windows(early), key=errors.__getitem__) for early in (False, True)]
        cells = [text for w in best for text in (str(w.length), f"{errors[w]:.2f}")]
        table.add_row(name, *cells, style="bold" if name == fitted.reading else None)
    yield table
    early = fitted.window.early
    begin = "the round before" if early else "the first round"
    table = Table(title=f"{fitted.reading}: windows from {begin} on", title_justify="left")
    for head in ("rounds", "all methods", *fitted.methods):
        table.add_column(head, justify="right")
    for window in _windows(early):
        columns = [fitted.errors[fitted.reading], *fitted.methods.values()]
        table.add_row(
            str(window.length),
            *(f"{column[window]:.2f}" for column in columns),
            style="bold" if window == fitted.window else None,
        )
    yield table


def _windows(early: bool) -> list[Window]:
    return [Window(length, early) for length in LENGTHS]


def states(results: Path) -> list[dict[str, Any]]:
    """Return every table and figure with its cells, done and all, and the minutes they take."""
    done: dict[str, bool] = {}
    minutes: dict[str, float] = {}
    all_states = []
    for study in STUDIES.values():
        state: dict[str, Any] = {
            "id": study.id,
            "title": study.title,
            "kind": "figure" if study.id in FIGURES else "table",
            "data": list(study.datasets),
        }
        for scale in SCALES:
            cells = cells_of(study.id, scale, default_seeds(scale))
            for cell in cells:
                if cell.name not in done:
                    done[cell.name] = is_done(cell, results)
                    minutes[cell.name] = seconds(cell) / 60
            names = [cell.name for cell in cells]
            total = sum(minutes[name] for name in names)
            state[scale] = {
                "cells": len(names),
                "done": sum(done[name] for name in names),
                "minutes": None if math.isnan(total) else round(total, 1),
                "needs": (study.needs or {}).get(scale),
            }
        all_states.append(state)
    return all_states


def listing_table(all_states: Sequence[Mapping[str, Any]]) -> Table:
    """Return the states as a table."""
    table = Table(
        title="Tables and figures of the paper",
        title_justify="left",
        caption="cells done of all, and how long all of them take on the machine of `speed`; "
        "full is the paper's set-up, small what two cores can do",
        caption_justify="left",
    )
    table.add_column("id")
    for scale in SCALES:
        table.add_column(scale, no_wrap=True)
    for state in all_states:
        cells = []
        for scale in SCALES:
            facts = state[scale]
            counts = f"{facts['done']} of {facts['cells']}, {duration(facts['minutes'])}"
            needs = f"\n{facts['needs']}" if facts["needs"] else ""
            cells.append(f"{counts}{needs}" if facts["cells"] else "no runs")
        table.add_row(f"[bold]{state['id']}[/]\n{state['title']}", *cells)
    return table


def duration(minutes: float | None) -> str:
    """Return a time in the unit that suits it; a question mark where it is not known.

    >>> duration(0.4), duration(90.0), duration(6000.0), duration(None)
    ('1 min', '1.5 h', '4.2 d', '?')
    """
    if minutes is None or math.isnan(minutes):
        return "?"
    if minutes < 60:
        return f"{math.ceil(minutes)} min"
    return f"{minutes / 60:.1f} h" if minutes < 1440 else f"{minutes / 1440:.1f} d"
