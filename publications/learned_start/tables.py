"""Tables of leads, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from learned_start.regret import Lead, summarise
from learned_start.rules import LEARNED
from learned_start.trajectories import MARKS, Row


def regret_table(leads: Sequence[Lead]) -> Table:
    """Return a table of every start's lead over the best simple one."""
    table = Table(
        "start", "transitions", "mean", "worst", "at most 0.5 behind", "> 1 behind", "ahead"
    )
    for row in summarise(leads):
        table.add_row(
            row.rule,
            str(row.transitions),
            f"{row.mean:+.2f}",
            f"{row.worst:+.2f}",
            f"{row.within_half:.1%}",
            str(row.beyond_one),
            f"{row.ahead:.0%}",
        )
    return table


def worst_table(leads: Sequence[Lead], rule: str = LEARNED, most: int = 8) -> Table:
    """Return the transitions at which a start is furthest behind."""
    table = Table("cell", "session", "lead", "noise", title=f"{rule}: worst transitions")
    mine = sorted((lead for lead in leads if lead.rule == rule), key=lambda lead: lead.points)
    for lead in mine[:most]:
        noise = "" if lead.noise is None else f"{lead.noise:.2f}"
        table.add_row(lead.cell, str(lead.session), f"{lead.points:+.2f}", noise)
    return table


def first_table(rows: Sequence[Row]) -> Table:
    """Return a table of how often each start is first, by setting."""
    methods = list(dict.fromkeys(method for row in rows for method in row.curves))
    table = Table("setting", "rows", *(f"first: {method}" for method in methods), *methods)
    settings = dict.fromkeys(row.setting for row in rows)
    for name in [*settings, "all"]:
        here = [row for row in rows if name in (row.setting, "all")]
        wins = Counter(row.first for row in here)
        means = []
        for method in methods:
            values = [row.window(method) for row in here if method in row.curves]
            means.append(f"{fmean(values):.1f}" if values else "")
        table.add_row(name, str(len(here)), *(str(wins[method]) for method in methods), *means)
    return table


def lead_table(rows: Sequence[Row]) -> Table:
    """Return a table of mean leads over the carried-over model, after single rounds."""
    marks = [*MARKS, None]
    table = Table("setting", "start", *("last" if mark is None else f"{mark}" for mark in marks))
    for setting in dict.fromkeys(row.setting for row in rows):
        here = [row for row in rows if row.setting == setting]
        for method in (LEARNED, "warm_start"):
            leads = [fmean(row.lead(method, "previous", mark) for row in here) for mark in marks]
            table.add_row(setting, method, *(f"{lead:+.1f}" for lead in leads))
    return table
