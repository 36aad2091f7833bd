"""Tables of leads, the same for a terminal and for a page: a head, and rows of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from rich.table import Table

from ebbflow.report import markdown
from learned_start.charged import AXES, METHODS, Axis, ChargedRow
from learned_start.regret import Lead, summarise
from learned_start.rules import LEARNED
from learned_start.trajectories import MARKS, Row


class TextTable(NamedTuple):
    """A table of text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None = None

    def markdown(self) -> str:
        """Return it for a page."""
        return markdown.table(self.head, self.rows)

    def for_terminal(self) -> Table:
        """Return it for a terminal."""
        table = Table(*self.head, title=self.title)
        for row in self.rows:
            table.add_row(*(cell.replace("**", "") for cell in row))
        return table


def regret_table(leads: Sequence[Lead]) -> TextTable:
    """Return every start's lead over the best simple one."""
    head = ("transitions", "mean", "worst", "at most 0.5 behind", "more than 1 behind", "ahead")
    rows = [
        [
            f"**{row.rule}**" if row.rule == LEARNED else row.rule,
            str(row.transitions),
            f"{row.mean:+.2f}",
            f"{row.worst:+.2f}",
            f"{row.within_half:.1%}",
            str(row.beyond_one),
            f"{row.ahead:.0%}",
        ]
        for row in summarise(leads)
    ]
    return TextTable(("start", *head), rows)


def worth_table(families: Mapping[str, Sequence[Lead]]) -> TextTable:
    """Return a row for each family: the learned start over the best simple one, beside others."""
    rows = []
    for title, found in families.items():
        summaries = {summary.rule: summary for summary in summarise(found)}
        learned = summaries[LEARNED]
        rows.append(
            [
                title,
                str(learned.transitions),
                f"**{learned.mean:+.2f}**",
                f"{learned.worst:+.2f}",
                f"{learned.ahead:.0%}",
                *(f"{summaries[rule].mean:+.2f}" for rule in ("warm_start", "average", "previous")),
            ]
        )
    head = ("trained", "transitions", "learned", "at worst", "ahead")
    return TextTable((*head, "warm_start", "average", "previous"), rows)


def worst_table(leads: Sequence[Lead], rule: str = LEARNED, most: int = 8) -> TextTable:
    """Return the transitions at which a start is furthest behind."""
    mine = sorted((lead for lead in leads if lead.rule == rule), key=lambda lead: lead.points)
    rows = [
        [
            lead.cell,
            str(lead.session),
            f"{lead.points:+.2f}",
            "" if lead.noise is None else f"{lead.noise:.2f}",
        ]
        for lead in mine[:most]
    ]
    return TextTable(("cell", "session", "lead", "noise"), rows, f"{rule}: worst transitions")


def first_table(rows: Sequence[Row]) -> TextTable:
    """Return each start's mean accuracy by setting, and in how many rows it is first."""
    methods = list(dict.fromkeys(method for row in rows for method in row.curves))
    lines = []
    for name in [*dict.fromkeys(row.setting for row in rows), "all"]:
        here = [row for row in rows if name in (row.setting, "all")]
        wins = Counter(row.first for row in here)
        cells = []
        for method in methods:
            values = [row.window(method) for row in here if method in row.curves]
            cells.append(f"{fmean(values):.1f} ({wins[method]})" if values else "")
        lines.append([name, str(len(here)), *cells])
    return TextTable(("setting", "rows", *(f"{method} (first)" for method in methods)), lines)


def lead_table(rows: Sequence[Row]) -> TextTable:
    """Return mean leads over the carried-over model, after single rounds."""
    marks = [*MARKS, None]
    lines = []
    for setting in dict.fromkeys(row.setting for row in rows):
        here = [row for row in rows if row.setting == setting]
        for method in (LEARNED, "warm_start"):
            found = [fmean(row.lead(method, "previous", mark) for row in here) for mark in marks]
            lines.append([setting, method, *(f"{lead:+.1f}" for lead in found)])
    shown = ("last" if mark is None else str(mark) for mark in marks)
    return TextTable(("setting", "lead over previous", *shown), lines)


def charged_table(rows: Sequence[ChargedRow], *, by_setting: bool = True) -> TextTable:
    """Return what each start needs and how good it is, all charged, by setting or over all.

    What is needed is a mean over the transitions at which all starts reach the target.
    """
    head = ("setting", "start", "reached", *(f"{axis} to 95 %" for axis in AXES))
    lines = []
    settings = list(dict.fromkeys(row.setting for row in rows)) if by_setting else []
    for setting in [*settings, "all"]:
        here = [row for row in rows if setting in (row.setting, "all")]
        late = {_place(row) for row in here if row.needed is None}
        for method in METHODS:
            mine = [row for row in here if row.method == method]
            common = [row for row in mine if _place(row) not in late]
            reached = sum(row.needed is not None for row in mine)
            needed = [_mean_needed(common, axis) for axis in AXES]
            means = [f"{fmean(row.mean[axis] for row in mine):.1f}" for axis in AXES]
            lines.append([setting, method, f"{reached} of {len(mine)}", *needed, *means])
    return TextTable((*head, *(f"accuracy over {axis}" for axis in AXES)), lines)


def _place(row: ChargedRow) -> tuple[str, int, int]:
    return row.setting, row.seed, row.session


def _mean_needed(rows: Sequence[ChargedRow], axis: Axis) -> str:
    """Return the mean of what was needed, and how much of it the probe or survey takes."""
    if not rows:
        return ""
    needed = fmean((row.needed or {})[axis] for row in rows)
    bill = fmean(row.bill[axis] for row in rows)
    return f"{needed:.3g} ({bill:.2g})" if bill else f"{needed:.3g}"
