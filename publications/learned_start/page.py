"""Fills the tables of docs/learned-start.md from the kept results and leaves its text unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import get_args

from chang2025.folders import CHECKOUT
from chang2025.running import is_done as has_run
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import filled, table
from learned_start.charged import Downlink, read_charged
from learned_start.keeping import RESULTS, is_done, read_rows
from learned_start.regret import Lead, leads, summarise
from learned_start.rules import LEARNED, SIMPLE
from learned_start.settings import DESIGN_SEEDS, FAMILIES, TEST_SEEDS, cells_of
from learned_start.tables import (
    charged_table,
    first_table,
    lead_table,
    regret_table,
    worth_table,
)
from learned_start.trajectories import FAMILIES as TRAJECTORY_FAMILIES
from learned_start.trajectories import TRAJECTORIES, churn_rows, rows_of
from learned_start.within import DEVICES, EVERY, at_equal_bytes, read_within

PAGE = CHECKOUT / "docs" / "learned-start.md"
README = CHECKOUT / "README.md"
PICTURE = CHECKOUT / "docs" / "learned-start.png"
SEEDS = {"100 to 300": DESIGN_SEEDS, "400 to 600": TEST_SEEDS}
FORKED = ("softmax", "fast", "mlp", "texts", "images")


def write_page(page: Path = PAGE, readme: Path = README, results: Path = RESULTS) -> None:
    """Write every table of the page, and the one in the README."""
    front = filled(readme.read_text(encoding="utf-8"), "worth", worth(results))
    write_atomically(readme, front.encode())
    text = page.read_text(encoding="utf-8")
    for name, block in (
        ("forks", forks(results)),
        ("strangers", strangers(results)),
        ("sensitivity", sensitivity(results)),
        ("malice", malice(results)),
        ("trajectories", trajectories(results / TRAJECTORIES.name)),
        ("churn", churn(results / TRAJECTORIES.name)),
        ("charged", charged(results)),
        ("within", within(results)),
    ):
        text = filled(text, name, block)
    write_atomically(page, text.encode())


def kept_leads(family: str, seeds: Sequence[int], results: Path) -> tuple[list[Lead], int, int]:
    """Return the leads of a family's cells that are done, how many these are, and of how many."""
    cells = cells_of(family, seeds)
    done = [cell for cell in cells if is_done(cell, results)]
    return (
        [lead for cell in done for lead in leads(cell, read_rows(cell, results))],
        len(done),
        len(cells),
    )


def worth(results: Path) -> str:
    """Return the learned start's lead over the best other start, a row for each kind of model."""
    found = {
        FAMILIES[family].title: kept_leads(family, TEST_SEEDS, results)[0]
        for family in ("softmax", "mlp", "texts", "images")
    }
    return worth_table({title: leads for title, leads in found.items() if leads}).markdown()


# --- forks ---------------------------------------------------------------------------------------


def forks(results: Path) -> str:
    """Return a table of leads for every family and set of seeds."""
    parts = []
    for family in FORKED:
        for seeds, numbers in SEEDS.items():
            found, done, every = kept_leads(family, numbers, results)
            if not found:
                parts.append(f"{FAMILIES[family].title}, seeds {seeds}: not run.\n")
                continue
            about = f"{FAMILIES[family].title}, seeds {seeds} ({done} of {every} cells):\n"
            parts.append(f"{about}\n{regret_table(found).markdown()}")
            if any(lead.noise is not None for lead in found):
                parts.append(_single(found))
    return "\n".join(parts)


def _single(found: Sequence[Lead]) -> str:
    """Return every transition of the learned and the paper's start, beside the noise."""
    rows = [
        [lead.cell, str(lead.session), lead.rule, f"{lead.points:+.1f}", f"{lead.noise or 0:.1f}"]
        for lead in found
        if lead.rule in (LEARNED, "warm_start")
    ]
    head = ["cell", "session", "start", "lead", "standard deviation over mini-batches"]
    return f"Each transition, as the mean over two draws of mini-batches:\n\n{table(head, rows)}"


def strangers(results: Path) -> str:
    """Return what happens when all devices are new."""
    parts = []
    for seeds, numbers in SEEDS.items():
        found, done, every = kept_leads("strangers", numbers, results)
        if not found:
            parts.append(f"Seeds {seeds}: not run.\n")
            continue
        for name, about in (("o0.0", "their labels, too"), ("two_shard", "most labels are known")):
            here = [lead for lead in found if f"-{name}-" in lead.cell]
            told = f"All devices are new, {about}; seeds {seeds} ({done} of {every} cells):"
            parts.append(f"{told}\n\n{regret_table(here).markdown()}")
    return "\n".join(parts)


def sensitivity(results: Path) -> str:
    """Return the leads of the learned start with something changed."""
    found, done, every = kept_leads("sensitivity", DESIGN_SEEDS, results)
    if not found:
        return "Not run.\n"
    about = (
        "MNIST, FedAvg; Two-Shard, Distinct, and overlaps 0.0 and 0.8; seeds 100 to 300 "
        f"({done} of {every} cells):\n"
    )
    return f"{about}\n{regret_table(found).markdown()}"


def malice(results: Path) -> str:
    """Return what wrong answers do, beside the honest outcome at the same transition."""
    found, done, every = kept_leads("malice", DESIGN_SEEDS, results)
    if not found:
        return "Not run.\n"
    honest = {(lead.cell, lead.session): lead.points for lead in found if lead.rule == LEARNED}
    rows = []
    for summary in summarise(found):
        if summary.rule in SIMPLE:
            continue
        mine = [lead for lead in found if lead.rule == summary.rule]
        apart = [lead.points - honest[lead.cell, lead.session] for lead in mine]
        rows.append(
            [
                summary.rule,
                f"{summary.mean:+.2f}",
                f"{summary.worst:+.2f}",
                f"{fmean(apart):+.2f}",
                f"{min(apart):+.2f}",
                f"{sum(value >= -1 for value in apart) / len(apart):.0%}",
                f"{sum(lead.warned for lead in mine) / len(mine):.0%}",
            ]
        )
    head = [
        "answers",
        "mean lead",
        "worst lead",
        "beside honest",
        "worst",
        "at most 1 below honest",
        "warned",
    ]
    about = (
        "MNIST, FedAvg; Two-Shard, Distinct, and overlaps 0.0 and 0.8; seeds 100 to 300 "
        f"({done} of {every} cells):\n"
    )
    return f"{about}\n{table(head, rows)}"


# --- trajectories --------------------------------------------------------------------------------


def trajectories(results: Path) -> str:
    """Return how often each start is first, and its lead over the carried-over model."""
    parts = []
    for family, title in (
        ("paper", "The paper's main tables (100 devices a session)"),
        ("appendix", "The appendix's distributions (10 devices a session)"),
    ):
        for seeds, numbers in SEEDS.items():
            cells = list(TRAJECTORY_FAMILIES[family](numbers))
            rows = rows_of(cells, results)
            if not rows:
                parts.append(f"{title}, seeds {seeds}: not run.\n")
                continue
            done = sum(has_run(cell, results) for cell in cells)
            about = (
                f"{title}, seeds {seeds} ({done} of {len(cells)} cells). A row is a setting, an "
                "algorithm and a transition; shown is the mean accuracy over its first ten "
                "rounds:\n"
            )
            parts.append(f"{about}\n{first_table(rows).markdown()}\n{lead_table(rows).markdown()}")
    return "\n".join(parts)


def churn(results: Path) -> str:
    """Return each start's mean and last accuracy under random churn."""
    parts = []
    for seeds, numbers in SEEDS.items():
        rows = churn_rows(list(TRAJECTORY_FAMILIES["churn"](numbers)), results)
        if not rows:
            parts.append(f"Seeds {seeds}: not run.\n")
            continue
        lines = [
            [row.setting, row.method, f"{row.mean:.1f}", f"{row.last:.1f}", str(row.seeds)]
            for row in rows
        ]
        head = ["setting", "start", "mean from session 4 on", "last five sessions", "seeds"]
        parts.append(f"Seeds {seeds}:\n\n{table(head, lines)}")
    return "\n".join(parts)


def charged(results: Path) -> str:
    """Return what every start needs and reaches with its probe or survey charged."""
    parts = []
    for seeds, numbers in SEEDS.items():
        rows = read_charged(numbers, results)
        if not rows:
            parts.append(f"Seeds {seeds}: not run.\n")
            continue
        for downlink, about in (
            ("unicast", "Every device gets a copy of its own"),
            ("multicast", "One copy for all"),
        ):
            here = [row for row in rows if row.downlink == downlink]
            shown = charged_table(here, by_setting=downlink == "unicast").markdown()
            parts.append(f"{about} (`wireless.downlink = {downlink}`), seeds {seeds}:\n\n{shown}")
    return "\n".join(parts)


def within(results: Path) -> str:
    """Return accuracies with learned steps and without."""
    rows = read_within(results)
    if not rows:
        return "Not run.\n"
    lines = []
    for algorithm, steps in dict.fromkeys((row.algorithm, row.steps) for row in rows):
        mine = [row for row in rows if (row.algorithm, row.steps) == (algorithm, steps)]
        mean = [fmean(values) for values in zip(*(row.accuracy for row in mine), strict=True)]
        equal = [fmean(at_equal_bytes(row, link) for row in mine) for link in get_args(Downlink)]
        shown = [f"{mean[mark - 1]:.1f}" for mark in (5, 10, 20, 40, len(mean))]
        name = f"{algorithm}, learned steps" if steps else algorithm
        lines.append([name, *shown, *(f"{value:.2f}" for value in (fmean(mean), *equal))])
    head = ["algorithm", "round 5", "10", "20", "40", "60", "mean of all rounds"]
    head += [f"at equal bytes, {link}" for link in get_args(Downlink)]
    seeds = len({row.seed for row in rows})
    about = f"MNIST, {DEVICES} devices with all labels, one session, {seeds} seeds; a step every "
    about += f"{EVERY} rounds:\n"
    return f"{about}\n{table(head, lines)}"
