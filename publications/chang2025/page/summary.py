"""The page's first section: how far the warm start leads, and where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from chang2025 import comparing, findings, leads, time_to_accuracy
from chang2025.comparing import agreement
from chang2025.page.pieces import bullets, folded, joined, plain
from chang2025.reports import appendix_rows
from chang2025.rows import ComparedRow, accuracy_rows
from chang2025.time_to_accuracy import Adaptation
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS


def summary(
    rows: Mapping[str, list[ComparedRow]],
    adapted: Sequence[Adaptation],
    window: Window,
    results: Path,
) -> Iterator[str]:
    """Yield the section; ``rows`` are those of the main text's tables, by data set."""
    yield "## In short\n"
    if not rows:
        yield "Nothing has been run yet.\n"
        return
    everyone = [row for own in rows.values() for row in own]
    yield from _leads(everyone, list(rows), window, results)
    yield from _other_algorithms(everyone)
    yield from _appendix(results)
    for dataset, own in rows.items():
        yield f"**{DATASETS[dataset]}.** {comparing.sentence(agreement(own))}\n"
        yield from held_out_rows(own)
    behind = leads.not_first(everyone)
    if behind:
        yield "Where it does not lead, in the tables of the main text:\n"
        yield bullets(behind)
    else:
        yield "There is no counted row of the main text in which another start is ahead.\n"
    yield f"{time_to_accuracy.summary_sentence(adapted)}\n"


def held_out_rows(rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Yield what the rows outside the fit say, if the others took part in it."""
    counted = [row for row in rows if row.counted and row.theirs]
    others = findings.held_out(counted)
    if len(others) < len(counted):
        yield (
            f"Window and reading were fitted on {len(counted) - len(others)} of the "
            f"{len(counted)} {DATASETS[counted[0].dataset]} rows; {len(others)} took no part. Of "
            f"these alone: {comparing.sentence(agreement(others))}\n"
        )


def _leads(
    rows: Sequence[ComparedRow], datasets: Sequence[str], window: Window, results: Path
) -> Iterator[str]:
    grouped = leads.groups(rows)
    yield (
        "Points of accuracy by which the warm start is ahead of another start: the median over the "
        "rows of a table, and in parentheses the paper's for the same rows; then how many labels a "
        "session has in common with the one before, and in how many rows the warm start is first. "
        f"Accuracies are means over {window}, which is what fits the paper's tables best (below). "
        f"{leads.verdict(grouped)}\n"
    )
    yield from plain(leads.gains_grid(grouped))
    if window.early:
        later = Window(window.length)
        without = [row for dataset in datasets for row in accuracy_rows(dataset, results, later)]
        yield f"The same over {later}, without the last round of the session before:\n"
        yield from plain(leads.gains_grid(leads.groups(without)))
    yield (
        "And in single rounds of the same sessions (the median over the same rows): a better start "
        "helps most in the first rounds; the last column shows what is left for someone who "
        "trains that long anyway.\n"
    )
    yield from plain(leads.lead_by_round(grouped))
    shown, others = findings.returning_groups(rows)
    yield (
        f"The paper's tables have transitions {joined(list(shown))}. There the group that comes "
        f"back has been there less often than the other ({joined(list(shown.values()))} past "
        "sessions), which the plain average suffers from"
    ) + (
        f"; at transitions {joined(list(others))} both have been there equally often:\n"
        if others
        else ":\n"
    )
    yield from plain(leads.lead_by_transition(grouped, window))


def _other_algorithms(rows: Sequence[ComparedRow]) -> Iterator[str]:
    if leads.extra_rows(rows):
        yield (
            "With FedAvg and with the true SCAFFOLD, which the paper did not run, over the rounds "
            "of the first table. The true SCAFFOLD is at the rate of the authors'. The more an "
            "algorithm learns in a round, the less a better start is worth:\n"
        )
        yield from plain(leads.extra_grid(rows))


def _appendix(results: Path) -> Iterator[str]:
    rows = appendix_rows(results)
    grouped = leads.groups(rows)
    if grouped:
        yield (
            "The appendix has other distributions of labels and fewer devices, and the first "
            f"{comparing.FIRST_TEN} rounds. {leads.verdict(grouped)} A warm start goes on from "
            "sessions like this one and leaves aside what was learnt in the others since. Where "
            "those have most labels in common with this one, or where a session is too short to "
            "learn its task, that is a loss:\n"
        )
        yield from plain(leads.gains_grid(grouped))
        yield from folded("Round by round", leads.lead_by_round(grouped))
    if leads.extra_rows(rows):
        yield (
            "How much of that is due to sessions that are too short? The true SCAFFOLD learns more "
            "in a round. With it, on the same devices and over the same rounds, the warm start "
            f"leads the best other start in the median {leads.extra_verdict(rows)}:\n"
        )
        yield from plain(leads.extra_grid(rows))
