"""How far the warm start is ahead of the other starts, and where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from chang2025.collecting import Family
from chang2025.comparing import agreement
from chang2025.rendering import Grid
from chang2025.results import CurveKey
from chang2025.rows import ComparedRow
from chang2025.study_cells import EXTRA_ALGORITHMS
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS

OTHERS = ("previous", "average", "continuous")


def gains(rows: Sequence[ComparedRow]) -> dict[str, tuple[float, float]]:
    """Return the median lead of the warm start over every other start, ours and the paper's.

    "best other" is the lead over whichever of them is best in the row.
    """
    medians: dict[str, tuple[float, float]] = {}
    own = [row for row in rows if row.counted and "warm_start" in row.both()]
    for other in OTHERS:
        with_it = [row for row in own if other in row.both()]
        if with_it:
            medians[other] = (
                median(row.mean("warm_start") - row.mean(other) for row in with_it),
                median(row.theirs["warm_start"].mean - row.theirs[other].mean for row in with_it),
            )
    leads = [lead(row) for row in own if len(row.both()) > 1]
    if leads:
        medians["best other"] = (median(a for a, _ in leads), median(b for _, b in leads))
    return medians


def lead(row: ComparedRow) -> tuple[float, float]:
    """Return the warm start's lead over the best other start, ours and the paper's."""
    others = [column for column in row.both() if column != "warm_start"]
    return (
        row.mean("warm_start") - max(row.mean(other) for other in others),
        row.theirs["warm_start"].mean - max(row.theirs[other].mean for other in others),
    )


class LeadGroup(NamedTuple):
    """Rows of a table whose sessions have equally much in common.

    ``common`` is how many labels the devices of one session share with those of the next.
    """

    dataset: str
    setting: str
    common: str
    rows: Sequence[ComparedRow]

    @property
    def label(self) -> str:
        """The data set and the setting."""
        return f"{DATASETS[self.dataset]}, {self.setting}"


def groups(rows: Sequence[ComparedRow]) -> list[LeadGroup]:
    """Return counted rows by data set and overlap; the appendix's by labels, devices and model."""
    own: dict[tuple[str, str], list[ComparedRow]] = {}
    for row in rows:
        if row.counted and row.theirs:
            own.setdefault((row.dataset, _sessions(row)), []).append(row)
    return [
        LeadGroup(dataset, setting, _common_labels(_families(each)), each)
        for (dataset, setting), each in own.items()
    ]


def _sessions(row: ComparedRow) -> str:
    """Return what a row's sessions are like: the overlap, or labels, devices and model."""
    kind = row.setting.partition(",")[0]
    if row.study.startswith("first10"):
        return f"{kind}, {row.family.config.partition.devices} devices, {row.model}"
    return kind


def _families(rows: Sequence[ComparedRow]) -> list[Family]:
    """Return the families behind rows, each once."""
    return list({row.family.name: row.family for row in rows}.values())


def _common_labels(families: Sequence[Family]) -> str:
    """Return how many labels two sessions that follow each other share, of how many."""
    shared, classes = [], 0
    for family in families:
        for result in family.results:
            sessions = result.facts["sessions"][result.pilot :]
            classes = result.facts["dataset"]["classes"]
            shared += [len(set(a["labels"]) & set(b["labels"])) for a, b in pairwise(sessions)]
    return f"{fmean(shared):.2g} of {classes}" if shared else ""


def gains_grid(shown: Sequence[LeadGroup]) -> Grid:
    """Return the median leads of every group."""
    lines = []
    for group in shown:
        leads = gains(group.rows)
        first = agreement(group.rows)
        lines.append(
            [
                DATASETS[group.dataset],
                group.setting,
                group.common,
                str(first.rows),
                *(
                    f"{leads[name][0]:+.1f} ({leads[name][1]:+.1f})" if name in leads else ""
                    for name in (*OTHERS, "best other")
                ),
                f"{first.warm_first} ({first.warm_first_theirs})",
            ]
        )
    head = ["data set", "sessions", "common labels", "rows"]
    head += [f"over {name}" for name in (*OTHERS, "best other")]
    return Grid("Lead of the warm start", [*head, "first in"], lines)


def extra_rows(rows: Sequence[ComparedRow]) -> dict[tuple[str, str, str], list[ComparedRow]]:
    """Return rows of algorithms that the paper did not run, by data set, sessions, algorithm."""
    extra: dict[tuple[str, str, str], list[ComparedRow]] = {}
    for row in rows:
        own = row.algorithm in EXTRA_ALGORITHMS and not row.counted and not row.note
        if own and "warm_start" in row.ours:
            where = DATASETS[row.dataset], _sessions(row), row.algorithm
            extra.setdefault(where, []).append(row)
    return extra


def own_lead(row: ComparedRow, others: Sequence[str] = OTHERS) -> float:
    """Return our warm start's lead over the best of other starts, whatever the paper has."""
    return row.mean("warm_start") - max(row.mean(other) for other in others if other in row.ours)


def extra_grid(rows: Sequence[ComparedRow]) -> Grid:
    """Return the median leads under algorithms that the paper did not run."""
    lines = []
    for where, each in extra_rows(rows).items():
        columns = [
            [own_lead(row, [other]) for row in each if other in row.ours] for other in OTHERS
        ]
        best = [own_lead(row) for row in each]
        cells = [f"{median(leads):+.1f}" if leads else "" for leads in (*columns, best)]
        lines.append([*where, str(len(each)), *cells, str(sum(lead > 0 for lead in best))])
    head = ["data set", "sessions", "algorithm", "rows"]
    head += [f"over {name}" for name in (*OTHERS, "best other")]
    return Grid("Lead of the warm start under other algorithms", [*head, "first in"], lines)


def extra_verdict(rows: Sequence[ComparedRow]) -> str:
    """Return in how many lines of the grid the warm start leads in the median."""
    leads = [median(own_lead(row) for row in each) for each in extra_rows(rows).values()]
    return f"in {sum(lead > 0 for lead in leads)} of {len(leads)} lines"


def verdict(shown: Sequence[LeadGroup]) -> str:
    """Return in how many groups the warm start leads in the median, and where it trails most."""
    leads = {group.label: gains(group.rows)["best other"][0] for group in shown}
    ahead = sum(value > 0 for value in leads.values())
    text = f"In {ahead} of {len(leads)} lines it leads the best other start in the median"
    least = min(leads, key=leads.__getitem__)
    return (
        f"{text}."
        if leads[least] > 0
        else f"{text}; it trails most in {least} ({leads[least]:+.1f})."
    )


ROUNDS = (1, 2, 5, 10, 20)
"""At which the lead is shown, beside a session's last round."""


def lead_by_round(shown: Sequence[LeadGroup]) -> Grid:
    """Return the warm start's median lead in single rounds, from a session's first to its last."""
    lines = []
    for group in shown:
        for other in OTHERS:
            leads = [each for row in group.rows if (each := _leads(row, other))]
            if leads:
                cells = [f"{median(column):+.1f}" for column in zip(*leads, strict=True)]
                lines.append([DATASETS[group.dataset], group.setting, other, *cells])
    head = ["data set", "sessions", "over", *(f"round {t}" for t in ROUNDS), "last round"]
    return Grid("Lead of the warm start, round by round", head, lines)


def _leads(row: ComparedRow, other: str) -> list[float]:
    """Return the mean lead over the seeds at each of the rounds; nothing without such curves."""
    session = row.family.session(row.transition)
    by_result = []
    for result in row.family.results:
        keys = [CurveKey(row.algorithm, method, session) for method in ("warm_start", other)]
        if any(key not in result.curves for key in keys):
            return []
        warm, there = (result.curves[key] for key in keys)
        places = [min(t, len(warm)) - 1 for t in ROUNDS] + [-1]
        by_result.append([warm[place] - there[place] for place in places])
    return [fmean(column) for column in zip(*by_result, strict=True)]


def lead_by_transition(shown: Sequence[LeadGroup], window: Window) -> Grid:
    """Return the warm start's median lead at every transition, of which the paper shows two."""
    lines = []
    for group in shown:
        runs = {(row.family.name, row.algorithm): row.family for row in group.rows}
        last = min(f.config.sessions - f.session(0) for f in runs.values())
        for other in OTHERS:
            cells = []
            for k in range(1, last + 1):
                leads = [
                    fmean(warm) - fmean(there)
                    for (_, algorithm), family in runs.items()
                    for warm in [family.windows(algorithm, "warm_start", k, window)]
                    for there in [family.windows(algorithm, other, k, window)]
                    if warm and there
                ]
                cells.append(f"{median(leads):+.1f}" if leads else "")
            if any(cells):
                lines.append([DATASETS[group.dataset], group.setting, other, *cells])
    most = max((len(line) for line in lines), default=3)
    lines = [[*line, *[""] * (most - len(line))] for line in lines]
    head = ["data set", "sessions", "over", *(f"transition {k}" for k in range(1, most - 2))]
    return Grid("Lead of the warm start, transition by transition", head, lines)


def not_first(rows: Sequence[ComparedRow]) -> list[str]:
    """Return the counted rows in which the warm start is not the best start."""
    sentences = []
    for row in rows:
        if row.counted and row.theirs and row.orders()[0][0] != "warm_start":
            ours, theirs = lead(row)
            sentences.append(
                f"{DATASETS[row.dataset]}, {row.setting}, {row.algorithm}, transition "
                f"{row.transition}: {row.orders()[0][0]} is ahead by {-ours:.2f} points (in the "
                f"paper the warm start is {'ahead' if theirs > 0 else 'behind'} by "
                f"{abs(theirs):.2f})"
            )
    return sentences
