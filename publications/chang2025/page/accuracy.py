"""The page's sections on accuracies: after a transition, ablations, the first ten rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from chang2025 import ablations, comparing, findings
from chang2025.cells import TRAINING_SAMPLES
from chang2025.collecting import Family, families, largest_scale
from chang2025.comparing import agreement
from chang2025.page.pieces import bullets, folded, joined, titled
from chang2025.rendering import Grid
from chang2025.reports import appendix_window
from chang2025.results import CurveKey
from chang2025.rows import LARGE, ComparedRow, first_ten_rows
from chang2025.studies import APPENDIX_STUDIES, STUDIES, cells_of, default_seeds
from chang2025.study_cells import ABLATION_ROWS, SMALL_MODEL_ABLATION, SMALL_MODEL_DATASETS
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS, SEEDS


def accuracy(rows: Mapping[str, list[ComparedRow]], pictures: str, results: Path) -> Iterator[str]:
    """Yield every accuracy table of the main text beside the paper's."""
    yield "## Accuracy after a transition\n"
    yield (
        "A cell shows our mean and deviation over seeds, and below them the paper's mean and the "
        "difference, in points and in the paper's standard deviations. The best start is in bold. "
        "The last column says what agrees with the paper: the order of all starts, the winner, or "
        "neither.\n"
    )
    for dataset, own in rows.items():
        yield f"### {DATASETS[dataset]}\n"
        yield f"{comparing.sentence(agreement(own))}\n"
        yield from _part(dataset, own)
        yield from findings.precision_check(own)
        yield f"![Accuracy over the rounds]({pictures}/{dataset}-curves.png)\n"
        grid = Grid(dataset, *comparing.compact_table(own))
        yield from folded(f"All rows: {len(own)}", grid)
        yield from _differences(own)
        if dataset == "agnews":
            lines, grids = findings.news_findings(own)
            yield bullets(lines)
            for each in grids:
                yield from folded(each.title, each)
    for dataset in DATASETS:
        if dataset not in rows:
            yield f"### {DATASETS[dataset]}\n"
            yield _path_only(dataset, largest_scale(families(f"{dataset}-accuracy", results)))


def _part(dataset: str, rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Yield how a table on a part of the data differs from the paper's, if it is one."""
    own = [row for row in rows if row.counted]
    if all(row.family.scale == "full" for row in own):
        return
    here, paper = own[0].family, cells_of(f"{dataset}-accuracy", "full", default_seeds("full"))[0]
    config, theirs = here.config, paper.config
    learnt, before = [], []
    for row in own:
        key = CurveKey(row.algorithm, "warm_start", row.family.session(row.transition))
        for result in row.family.results:
            weights = result.start(key)["weights"]
            nearest = int(max(weights, key=weights.__getitem__))
            learnt.append(result.curves[key][-1])
            before.append(result.curves[key._replace(session=nearest)][-1])
    yield (
        f"A part of it: {here.results[0].facts['dataset']['train']:,} of "
        f"{TRAINING_SAMPLES[dataset]:,} samples, {config.partition.devices} devices a session "
        f"(in the paper {theirs.partition.devices}), {config.sessions} sessions of "
        f"{config.rounds} rounds ({theirs.sessions} of {theirs.rounds}), {len(here.seeds)} of "
        f"{len(SEEDS)} seeds, {config.precision}. In the last round of these sessions "
        f"`warm_start` has {fmean(learnt):.1f} percent on average; the past session that its start "
        f"draws on most had ended at {fmean(before):.1f} percent.\n"
    )


def _path_only(dataset: str, own: Sequence[Family]) -> str:
    """Return what is said of a data set whose table is not compared."""
    if not own:
        return f"Not run: `python -m chang2025 run {dataset}-accuracy`.\n"
    family = own[0]
    last = family.config.sessions - family.config.pilot.sessions - 2
    scores = ", ".join(
        f"{method} {value:.1f}"
        for method in family.config.methods
        for value in family.windows(
            family.config.algorithm[0], method, last, Window(comparing.FIRST_TEN)
        )[:1]
    )
    return (
        f"We only checked that it runs: {family.results[0].facts['dataset']['train']:,} images, "
        f"{family.config.partition.devices} devices, {family.config.sessions} sessions of "
        f"{family.config.rounds} rounds, no trained weights ({family.config.algorithm[0]}: "
        f"{scores} percent, which says nothing about the method). The full table is one command "
        f"for someone with a GPU and the weights: `python -m chang2025 run {dataset}-accuracy "
        "--device cuda --weights FILE`.\n"
    )


def _differences(rows: Sequence[ComparedRow]) -> Iterator[str]:
    listed = comparing.large_differences(rows)
    if not listed.rows:
        yield f"No difference is larger than {LARGE:g} points.\n"
        return
    unexplained = sum(line[-1] == "unexplained" for line in listed.rows)
    title = f"{len(listed.rows)} differences of more than {LARGE:g} points"
    if unexplained:
        title += f", {unexplained} of them unexplained"
    yield from folded(title, listed)


def distance(results: Path, window: Window) -> Iterator[str]:
    """Yield what the printed distance does, beside the one of the authors' code."""
    yield "## The printed distance\n"
    lines, grids = findings.printed_distance(results, window)
    yield "\n\n".join(lines) + "\n"
    for grid in grids:
        yield from titled(grid)


def sensitivity(results: Path, window: Window) -> Iterator[str]:
    """Yield the ablations: pilots, probe rounds and similarity scales."""
    yield "## Sensitivity\n"
    overlap, alpha = SMALL_MODEL_ABLATION
    yield (
        f"The paper has rows for {joined([DATASETS[name] for name in ABLATION_ROWS])}; our "
        f"rows on {joined([DATASETS[name] for name in SMALL_MODEL_DATASETS])} are additional, at "
        f"overlap {overlap} and alpha {alpha}. Accuracy of `warm_start`.\n"
    )
    for name in ablations.ABLATIONS:
        report = ablations.ablation(name, results, window)
        yield f"### {report.title}\n"
        yield f"{report.lines[1]}\n"
        for grid in report.grids:
            yield from folded(grid.title, grid)
        absent = [
            DATASETS[dataset]
            for dataset in STUDIES[name].datasets
            if not any(row["dataset"] == dataset for row in report.rows)
        ]
        if absent:
            yield f"Not run: {', '.join(absent)}.\n"
    grid = findings.pilot_length_grid(results, window)
    if grid.rows:
        apart = [abs(float(line[-1])) for line in grid.rows]
        yield f"### {grid.title}\n"
        yield (
            f"At most {max(apart):.2f} points apart, in the median {median(apart):.2f}: after the "
            "restart at session P+1 the pilot model is used only for signatures.\n"
        )
        yield from folded("All rows", grid)


def first_ten(results: Path) -> Iterator[str]:
    """Yield the appendix's tables beside the paper's."""
    yield "## The first ten rounds\n"
    yield (
        "The appendix names an MLP for MNIST and Fashion-MNIST, while the paper's parameter counts "
        "are those of softmax regression; both were run. It says what labels devices hold, but not "
        "which of them form a session, nor rates, local steps or rounds: ours are two halves that "
        "take turns, and the main text's settings. So these rows say what the method does there, "
        "and their distance from the paper's numbers (one for each cell, without a deviation) says "
        "little.\n"
    )
    for name in APPENDIX_STUDIES:
        own = first_ten_rows(name, results, appendix_window(results))
        yield f"### {STUDIES[name].title}\n"
        if not any(row.counted for row in own):
            yield f"Not run in full: `python -m chang2025 run {name}`.\n"
            continue
        for model in dict.fromkeys(row.model for row in own):
            part = [row for row in own if row.model == model]
            yield f"`{model}`: {comparing.sentence(agreement(part))}\n"
            for dataset in dict.fromkeys(row.dataset for row in part):
                rows = [row for row in part if row.dataset == dataset]
                grid = Grid(name, *comparing.compact_table(rows))
                yield from folded(f"{DATASETS[dataset]}, {model}: {len(rows)} rows", grid)
        yield from _differences(own)
    yield "Rows of the paper's appendix that share most of their numbers:\n"
    yield bullets(findings.repeated_rows())
