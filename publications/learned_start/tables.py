"""Tables of leads, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from learned_start.regret import Lead, summarise
from learned_start.rules import LEARNED


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
